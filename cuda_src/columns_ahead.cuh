// The neighbouring rows of one thread of a block, fetched ahead: copied to shared memory, four stages of 128 bytes in all
// for each thread, which registers would not hold for as many threads as a multiprocessor has.
#pragma once
#include "columns.cuh"

// Each thread has K lanes. Of the block's threads X stand side by side, with C neighbouring rows each; those behind have
// the next lanes.
template <class Op, int C, int Lanes, int Steps, int K, int X, int Threads>
struct ColumnsAhead : Columns<Op, C, Lanes, Steps, (X < int(lanes) ? int(lanes) / X : 1)> {
    static constexpr int beside = X < int(lanes) ? X : int(lanes);  // lanes of a warp side by side
    static constexpr int behind = lanes / beside;                   // and behind each other
    using Base = Columns<Op, C, Lanes, Steps, behind>;
    using typename Base::A;
    using typename Base::Loaded;
    using typename Base::T;
    static constexpr int V = Base::V;
    static constexpr int vectors = power_within(128 / (V * int(sizeof(Loaded))), K * Steps);  // of a thread, in all stages
    static constexpr int stages = vectors < 4 ? vectors : 4, in_stage = vectors / stages;
    static constexpr int ahead = stages - 1;  // stages that are copied while one is folded
    static constexpr int team = X > int(lanes) ? X : int(lanes);
    static_assert(sizeof(Loaded) >= 4, "no fewer bytes are copied");

    // One vector of a warp's threads after the other: V elements of each.
    struct Places {
        Loaded of[vectors][Threads / lanes][V * lanes];
    };
    Places& places;
    const char* tile;  // the first row of the block's
    int tile_bytes;    // what neighbouring rows of the block take
    uint64 first;      // the warp's first lane, of those of all leaves

    // The block has `rows` rows from number `first_row` on, and the thread those from the `beside_rows`-th on.
    __device__ __forceinline__
    ColumnsAhead(const ShapedProblem& p, Places& shared, uint64 first_row, int rows, int beside_rows, uint64 first_lane)
        : Base(p, first_row + beside_rows, min(rows - beside_rows, C), behind > 1 ? rows % C == 0 : rows - beside_rows >= C),
          places(shared), first(first_lane)
    {
        tile = this->begin - beside_rows * int(sizeof(T));
        tile_bytes = rows * int(sizeof(T));
    }

    // The thread's lanes. All threads of the block call it.
    __device__ __forceinline__ void fold(A* a) const
    {
        const uint32 leaf = uint32(first / Lanes), lane = uint32(first % Lanes) + threadIdx.x % lanes / beside;
#if __CUDA_ARCH__ >= 800
        const uint64 stride = this->problem.reduced.stride[0];
        if (reinterpret_cast<uint64>(tile) % vector_bytes == 0) {
            if constexpr (beside * sizeof(Loaded) >= vector_bytes)
                if ((stride | uint64(tile_bytes)) % vector_bytes == 0) return fold_copied<Copies::warp>(leaf, lane, a);
            if (stride == uint64(tile_bytes)) return fold_copied<Copies::team>(leaf, lane, a);
        }
#endif
        this->template fold_lanes<K>(leaf, lane, a);
    }

private:
#if __CUDA_ARCH__ >= 800
    template <Copies By> static __device__ __forceinline__ void meet()
    {
        if constexpr (By == Copies::team && team > int(lanes)) __syncthreads();
        else __syncwarp();
    }

    template <Copies By> __device__ __forceinline__ void fold_copied(uint32 leaf, uint32 lane, A* a) const
    {
        const uint64 last = (first / (Threads / X * K) + 1) * (Threads / X * K);  // lanes of this block and those before
        const bool block_is_whole = (last + Lanes - 1) / Lanes * (Lanes * Steps * V) <= this->length;
        if (block_is_whole) fold_ahead<Fetch::whole, By>(leaf, lane, a);
        else fold_ahead<Fetch::part, By>(leaf, lane, a);
    }

    // While a stage is folded those after it are copied, the last of them to the places of that folded before.
    template <Fetch How, Copies By> __device__ __forceinline__ void fold_ahead(uint32 leaf, uint32 lane, A* a) const
    {
        constexpr int rounds = K * Steps / vectors;
        LaneCounter<Op, log2_of(rounds * stages)> counters[C];
#pragma unroll
        for (int stage = 0; stage < ahead; ++stage) copy<How, By>(leaf, stage * in_stage, stage * in_stage);
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
#pragma unroll
            for (int stage = 0; stage < stages; ++stage) {
                const uint32 number = round * vectors + stage * in_stage;
                if constexpr (ahead > 0) wait_for_copies<ahead - 1>();
                meet<By>();
                if (stage + ahead < stages || round + 1 < rounds)
                    copy<How, By>(leaf, number + ahead * in_stage, (stage + ahead) % stages * in_stage);
                else commit_copies();  // none, so that those to wait for are as many
                if constexpr (ahead == 0) {
                    wait_for_copies<0>();
                    meet<By>();
                }
                Loaded v[in_stage][V];
#pragma unroll
                for (int t = 0; t < in_stage; ++t) take<By>(v[t], stage * in_stage + t);
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const A value = this->template fold_vectors<How, 0, in_stage>(v, leaf, lane, number, c);
                    Base::template push<in_stage>(counters[c], value, round * stages + stage);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds * stages)];
    }

    // Where slot `s` of the thread `after` others and with `x` beside it in its warp is, in a vector's places. Slots trade
    // places so that threads of a warp find their s-th in different banks.
    static __device__ __forceinline__ uint32 place(uint32 after, uint32 s, uint32 x)
    {
        constexpr uint32 words = V * beside * sizeof(Loaded) / 4, in_a_wave = words < 32 ? 32 / words : 1;
        return (after * V + (s ^ after / in_a_wave % V)) * beside + x;
    }

    // The thread's slots of one vector.
    template <Copies By> __device__ __forceinline__ void take(Loaded* v, int from) const
    {
        const uint32 me = threadIdx.x % lanes;
        if constexpr (By == Copies::team) {
            const uint32 columns = tile_bytes / sizeof(T), mine = uint32(this->begin - tile) / sizeof(T);
            const T* elements = run(from) + me / beside * V * columns + mine;
#pragma unroll
            for (int s = 0; s < V; ++s)
#pragma unroll
                for (int c = 0; c < C; ++c) v[s].elements[c] = elements[s * columns + min(c, this->available - 1)];
        } else {
#pragma unroll
            for (int s = 0; s < V; ++s) v[s] = places.of[from][threadIdx.x / lanes][place(me / beside, s, me % beside)];
        }
    }

    // The places of a team's vector.
    __device__ __forceinline__ T* run(int number) const
    {
        return reinterpret_cast<T*>(places.of[number][threadIdx.x / team * (team / lanes)]);
    }

    // Copies a stage's vectors from `number` on to their places.
    template <Fetch How, Copies By> __device__ __forceinline__ void copy(uint32 leaf, uint32 number, int to) const
    {
#pragma unroll
        for (int i = 0; i < C; ++i) {
            if constexpr (By == Copies::warp) copy_block<How>(leaf, number, to, i * lanes + threadIdx.x % lanes);
            else copy_of_run<How>(leaf, number, to, i * team + threadIdx.x % team);
        }
        commit_copies();
    }

    // The 16-byte block of number `block` in each vector of the warp's threads. Past the block's rows the last is copied
    // again.
    template <Fetch How>
    __device__ __forceinline__ void copy_block(uint32 leaf, uint32 number, int to, uint32 block) const
    {
        constexpr uint32 in_a_row = beside * sizeof(Loaded) / vector_bytes;
        const uint32 bytes = block % in_a_row * vector_bytes, s = block / in_a_row % V, after = block / in_a_row / V;
        const uint32 before = threadIdx.x % X / beside * (beside * sizeof(Loaded));  // of the warp in the tile
        const char* start = tile + min(int(before + bytes), tile_bytes - int(vector_bytes));
        const uint64 index = this->index_of(leaf, uint32(first % Lanes) + after, number) + s;
        copy_stage<How, Copies::warp>(start, index, 0, [&](int t) {
            return reinterpret_cast<char*>(&places.of[to + t][threadIdx.x / lanes][place(after, s, 0)]) + bytes;
        });
    }

    // The 16-byte block of number `block` in each vector of the team's threads: V elements of a tile of any width have as
    // many as it has rows.
    template <Fetch How>
    __device__ __forceinline__ void copy_of_run(uint32 leaf, uint32 number, int to, uint32 block) const
    {
        if (block >= behind * tile_bytes / sizeof(T)) return;
        const uint64 index = this->index_of(leaf, uint32(first % Lanes), number);
        copy_stage<How, Copies::team>(tile, index, block * vector_bytes, [&](int t) {
            return reinterpret_cast<char*>(run(to + t)) + block * vector_bytes;
        });
    }

    // 16 bytes of each vector of a stage, `past` bytes after element `index` of the row at `start` for the first. What is
    // absent is not read.
    template <Fetch How, Copies By, class PlaceOf>
    __device__ __forceinline__ void copy_stage(const char* start, uint64 index, uint32 past, PlaceOf place_of_vector) const
    {
        const int64 stride = this->problem.reduced.stride[0];
        const char* address = start + int64(index) * stride + past;
#pragma unroll
        for (int t = 0; t < in_stage; ++t) {
            if constexpr (How == Fetch::whole) {
                copy_async(place_of_vector(t), address);
            } else {
                const int64 left = int64(this->length - index) * stride - past;
                copy_present<By>(place_of_vector(t), address, int32(min(max(left, int64(0)), int64(vector_bytes))));
            }
            address += this->next_vector(t) * stride;
            index += this->next_vector(t);
        }
    }
#endif
};
