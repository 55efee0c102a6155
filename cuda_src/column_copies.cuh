// What a block copies of neighbouring rows to shared memory: four stages, of 128 bytes in all for each thread, which registers
// could not hold for as many threads as a multiprocessor has.
#pragma once
#include "columns.cuh"
#include "overlap.cuh"

// X threads of the block stand side by side, with C neighbouring rows each; those behind each other have the same rows, and
// neighbouring lanes of them. Each thread folds K lanes: after each, all move on to the lanes that follow those of the whole
// block. So the block reads neighbouring elements at about the same time.
template <class Op, class Kept, int C, int Lanes, int Steps, int K, int X, int Threads, CopiedBy By>
struct ColumnCopies : Columns<Op, Kept, C, Lanes, Steps, (X < int(lanes) ? int(lanes) / X : 1), Threads / X> {
    static constexpr int beside = X < int(lanes) ? X : int(lanes);  // lanes of a warp side by side
    static constexpr int behind = lanes / beside;                   // and behind each other
    static constexpr int depth = Threads / X;                       // threads of the block behind each other
    using Base = Columns<Op, Kept, C, Lanes, Steps, behind, depth>;
    using typename Base::A;
    using typename Base::Loaded;
    using typename Base::T;
    static constexpr int V = Base::V;
    static constexpr int bytes_ahead = C * sizeof(A) > 32 ? 64 : 128;  // lanes that meet take shared memory too
    static constexpr int wanted = power_within(bytes_ahead / (V * int(sizeof(Loaded))), K * Steps);
    static constexpr int stages = wanted < 4 ? wanted : 4, in_stage = wanted / stages < Steps ? wanted / stages : Steps;
    static constexpr int vectors = stages * in_stage;  // of a thread, in all stages
    static constexpr int ahead = stages - 1;  // stages that are copied while one is folded
    static constexpr int team = X > int(lanes) ? X : int(lanes);
    static_assert(sizeof(Loaded) >= 4, "no fewer bytes are copied");
    static_assert(By != CopiedBy::warps || beside * sizeof(Loaded) >= vector_bytes, "no fewer of a warp, either");

    // The vectors of a warp's threads, one after the other, V elements of each thread. Copies are of 16 bytes, a warp's of 512,
    // and take a fifth longer where these do not begin at a line of all banks (benchmarks/NOTES.md, "How columns are cut").
    struct alignas(128) Places {
        Loaded of[vectors][Threads / lanes][V * lanes];
    };
    Places& places;
    const char* tile;  // the first of the block's rows
    int tile_bytes;    // bytes from the first row of the block to past the last
    uint64 first;      // the warp's first lane, counted over all leaves

    // The block has `rows` rows from number `first_row` on, and the thread C of them from the `beside_rows`-th on.
    __device__ __forceinline__
    ColumnCopies(const ShapedProblem& p, Places& shared, uint64 first_row, int rows, int beside_rows, uint64 first_lane)
        : Base(p, first_row + beside_rows, min(rows - beside_rows, C), behind > 1 ? rows % C == 0 : rows - beside_rows >= C),
          places(shared), first(first_lane)
    {
        tile = this->begin - beside_rows * int(sizeof(T));
        tile_bytes = rows * int(sizeof(T));
    }

protected:
    // Whether all blocks of 16 bytes that a warp's threads have, or a team's, are at multiples of 16 bytes.
    __device__ __forceinline__ bool are_copied() const
    {
        const uint64 address = reinterpret_cast<uint64>(tile), stride = this->problem.reduced.stride[0];
        if (By == CopiedBy::warps) return (address | stride | uint64(tile_bytes)) % vector_bytes == 0;
        return By == CopiedBy::teams && address % vector_bytes == 0 && stride == uint64(tile_bytes);
    }

    // One of the 16-byte blocks that each vector of a warp's threads consists of: those of one slot of the threads side by side
    // come first, then further slots, then the threads behind.
    struct Block {
        static constexpr uint32 in_a_row = beside * sizeof(Loaded) / vector_bytes;
        uint32 bytes, slot, after;  // bytes before it in the row; threads before those that it belongs to

        __device__ __forceinline__ explicit Block(uint32 number)
            : bytes(number % in_a_row * vector_bytes), slot(number / in_a_row % V), after(number / in_a_row / V) {}
    };

    // The number of a block's element, in vector `number` of the threads; and where it lies in the row of the tile's first
    // element. Past the tile's rows the last block is meant again.
    __device__ __forceinline__ uint64 index_of(Block block, uint32 leaf, uint32 number) const
    {
        return Base::index_of(leaf, uint32(first % Lanes) + block.after, number) + block.slot;
    }
    __device__ __forceinline__ const char* address_of(Block block) const
    {
        const uint32 before = threadIdx.x % X / beside * (beside * sizeof(Loaded));  // of the warp in the tile
        return tile + min(int(before + block.bytes), tile_bytes - int(vector_bytes));
    }

#if __CUDA_ARCH__ >= 800
    // A barrier of the threads that copy together.
    static __device__ __forceinline__ void meet()
    {
        if constexpr (By == CopiedBy::teams && team > int(lanes)) __syncthreads();
        else __syncwarp();
    }

    // Where in a vector's places slot `s` lies of the thread that has `after` others before it and `x` beside it in its warp.
    // Slots are swizzled, so that the threads of a warp find their s-th slots in different banks.
    static __device__ __forceinline__ uint32 place(uint32 after, uint32 s, uint32 x)
    {
        constexpr uint32 words = V * beside * sizeof(Loaded) / 4, in_a_wave = words < 32 ? 32 / words : 1;
        return (after * V + (s ^ after / in_a_wave % V)) * beside + x;
    }

    // Where a team's vector lies in shared memory.
    __device__ __forceinline__ T* run(int number) const
    {
        return reinterpret_cast<T*>(places.of[number][threadIdx.x / team * (team / lanes)]);
    }

    // Starts copies of a stage's vectors, from `number` on, to their places, and commits them as one group. Of bytes, whose
    // threads have the most columns, only a warp's whole ones take the registers and the code of several at once.
    template <Fetch How> __device__ __forceinline__ void copy(uint32 leaf, uint32 number, int to) const
    {
#pragma unroll((How == Fetch::whole && By == CopiedBy::warps) || !gathers<T> ? C : 1)
        for (int i = 0; i < C; ++i) {
            if constexpr (By == CopiedBy::warps) copy_block<How>(leaf, number, to, Block(i * lanes + threadIdx.x % lanes));
            else copy_of_run<How>(leaf, number, to, i * team + threadIdx.x % team);
        }
        commit_copies();
    }

    // Copies a block of each vector of a stage.
    template <Fetch How>
    __device__ __forceinline__ void copy_block(uint32 leaf, uint32 number, int to, Block block) const
    {
        copy_stage<How>(address_of(block), index_of(block, leaf, number), 0, [&](int t) {
            auto* vector = places.of[to + t][threadIdx.x / lanes];
            return reinterpret_cast<char*>(&vector[place(block.after, block.slot, 0)]) + block.bytes;
        });
    }

    // Copies the 16-byte block of number `block` of each vector of the team's threads: V elements of a tile of any width make
    // as many such blocks as it has rows.
    template <Fetch How>
    __device__ __forceinline__ void copy_of_run(uint32 leaf, uint32 number, int to, uint32 block) const
    {
        if (block >= behind * tile_bytes / sizeof(T)) return;
        const uint64 index = Base::index_of(leaf, uint32(first % Lanes), number);
        copy_stage<How>(tile, index, block * vector_bytes, [&](int t) {
            return reinterpret_cast<char*>(run(to + t)) + block * vector_bytes;
        });
    }

    // Copies 16 bytes of each vector of a stage: of the first, those `past` bytes after element `index` of the row at `start`.
    // What is absent is not read.
    template <Fetch How, class PlaceOf>
    __device__ __forceinline__ void copy_stage(const char* start, uint64 index, uint32 past, PlaceOf place_of_vector) const
    {
        const int64 stride = this->problem.reduced.stride[0];
        const char* address = start + int64(index) * stride + past;
#pragma unroll
        for (int t = 0; t < in_stage; ++t) {
            if constexpr (How == Fetch::whole) {
                copy_async(place_of_vector(t), address);
            } else if constexpr (By == CopiedBy::warps) {
                copy_async_if(index < this->length, place_of_vector(t), address);
            } else {
                const int64 left = int64(this->length - index) * stride - past;
                copy_front(place_of_vector(t), address, int32(min(max(left, int64(0)), int64(vector_bytes))));
            }
            address += this->next_vector(t) * stride;
            index += this->next_vector(t);
        }
    }
#endif
};
