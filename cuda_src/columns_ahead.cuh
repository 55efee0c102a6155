// The neighbouring rows of one thread of a block, fetched ahead: copied to shared memory, four stages of 128 bytes in all
// for each thread, which registers would not hold for as many threads as a multiprocessor has.
#pragma once
#include "columns.cuh"

// Each thread has K lanes. Of the block's threads X stand side by side, with C neighbouring rows each; those behind have
// the next lanes.
template <class Op, int C, int Lanes, int Steps, int K, int X, int Threads>
struct ColumnsAhead : Columns<Op, C, Lanes, Steps> {
    using Base = Columns<Op, C, Lanes, Steps>;
    using typename Base::A;
    using typename Base::Loaded;
    using typename Base::T;
    static constexpr int V = Base::V;
    static constexpr int vectors = power_within(128 / (V * int(sizeof(Loaded))), K * Steps);  // of a thread, fetched ahead
    static constexpr int stages = vectors < 4 ? vectors : 4, in_stage = vectors / stages;
    static constexpr int beside = X < int(lanes) ? X : int(lanes);  // lanes of a warp side by side
    static_assert(sizeof(Loaded) >= 4, "no fewer bytes are copied");

    // One vector of a warp's threads after the other: V elements of each.
    struct Places {
        Loaded of[vectors][Threads / lanes][V * lanes];
    };
    Places& places;
    const char* tile;  // the first row of the block's
    int tile_bytes;    // what neighbouring rows of the block take
    uint64 first;      // the thread's first lane, of those of all leaves

    // The block has `rows` rows from number `first_row` on, and the thread those from the `beside_rows`-th on.
    __device__ __forceinline__
    ColumnsAhead(const ShapedProblem& p, Places& shared, uint64 first_row, int rows, int beside_rows, uint64 first_lane)
        : Base(p, first_row + beside_rows, min(rows - beside_rows, C)), places(shared), first(first_lane)
    {
        tile = this->begin - beside_rows * int(sizeof(T));
        tile_bytes = rows * int(sizeof(T));
    }

    // The thread's lanes. All threads of the block call it.
    __device__ __forceinline__ void fold(A* a) const
    {
        const uint32 leaf = uint32(first / Lanes), lane = uint32(first % Lanes);
#if __CUDA_ARCH__ >= 800
        const uint64 last = (first / (Threads / X * K) + 1) * (Threads / X * K);  // lanes of this block and those before
        const bool block_is_whole = (last + Lanes - 1) / Lanes * (Lanes * Steps * V) <= this->length;
        if constexpr (beside * sizeof(Loaded) >= vector_bytes) {
            const uint64 addresses = reinterpret_cast<uint64>(tile) | uint64(this->problem.reduced.stride[0]);
            if ((addresses | uint64(tile_bytes)) % vector_bytes == 0) {
                if (block_is_whole) fold_ahead<Fetch::whole, true>(leaf, lane, a);
                else fold_ahead<Fetch::part, true>(leaf, lane, a);
                return;
            }
        }
        if (this->misplaced) return this->template fold_fetched<Fetch::bytes, K>(leaf, lane, a);
        if (this->aligned && block_is_whole) return fold_ahead<Fetch::whole, false>(leaf, lane, a);
        if (this->aligned) return fold_ahead<Fetch::part, false>(leaf, lane, a);
        if constexpr (C > 1 && sizeof(T) >= 4) fold_ahead<Fetch::single, false>(leaf, lane, a);
        else if constexpr (C > 1) this->template fold_fetched<Fetch::single, K>(leaf, lane, a);
#else
        this->template fold_lanes<K>(leaf, lane, a);
#endif
    }

private:
#if __CUDA_ARCH__ >= 800
    // Where slot `s` of the thread `behind` others and with `x` beside it in its warp is, in a vector's places. Slots trade
    // places so that threads of a warp find their s-th in different banks.
    static __device__ __forceinline__ uint32 place(uint32 behind, uint32 s, uint32 x)
    {
        constexpr uint32 words = V * beside * sizeof(Loaded) / 4, in_a_wave = words < 32 ? 32 / words : 1;
        return (behind * V + (s ^ behind / in_a_wave % V)) * beside + x;
    }

    // A stage is folded as soon as it is there, and its place filled with that of the next round. The copies are the
    // thread's own, or `Shared` by the warp: then each is of 16 bytes, whatever rows they belong to.
    template <Fetch How, bool Shared> __device__ __forceinline__ void fold_ahead(uint32 leaf, uint32 lane, A* a) const
    {
        constexpr int rounds = K * Steps / vectors;
        const uint32 me = threadIdx.x % lanes, warp = threadIdx.x / lanes;
        LaneCounter<Neighbours<Op, K == 1 || Steps == 1>, log2_of(rounds)> counters[C];
#pragma unroll
        for (int stage = 0; stage < stages; ++stage) copy<How, Shared>(leaf, lane, stage * in_stage, stage * in_stage);
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            A parts[C][stages];
#pragma unroll
            for (int stage = 0; stage < stages; ++stage) {
                wait_for_copies<stages - 1>();
                if constexpr (Shared) __syncwarp();
                const uint32 number = round * vectors + stage * in_stage;
                Loaded v[in_stage][V];
#pragma unroll
                for (int t = 0; t < in_stage; ++t)
#pragma unroll
                    for (int s = 0; s < V; ++s)
                        v[t][s] = places.of[stage * in_stage + t][warp][place(me / beside, s, me % beside)];
#pragma unroll
                for (int c = 0; c < C; ++c)
                    parts[c][stage] = this->template fold_vectors<How, 0, in_stage>(v, leaf, lane, number, c);
                if constexpr (Shared) __syncwarp();
                if (round + 1 < rounds) copy<How, Shared>(leaf, lane, number + vectors, stage * in_stage);
                else commit_copies();  // none, so that those to wait for are as many
            }
#pragma unroll
            for (int c = 0; c < C; ++c)
                counters[c].push(fold_array<Neighbours<Op, Steps == 1 || vectors <= Steps>, stages>(parts[c]), round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }

    // Copies a stage's vectors from `number` on to their places.
    template <Fetch How, bool Shared>
    __device__ __forceinline__ void copy(uint32 leaf, uint32 lane, uint32 number, int to) const
    {
        if constexpr (Shared) {
#pragma unroll
            for (int i = 0; i < C; ++i) copy_blocks<How>(leaf, lane, number, to, i * lanes + threadIdx.x % lanes);
        } else {
            copy_own<How>(leaf, lane, number, to);
        }
        commit_copies();
    }

    template <Fetch How> __device__ __forceinline__ void copy_own(uint32 leaf, uint32 lane, uint32 number, int to) const
    {
        const uint32 me = threadIdx.x % lanes;
        this->template each_element<How, in_stage>(leaf, lane, number, [&](int t, int s, const char* from) {
            Loaded* place_of_it = &places.of[to + t][threadIdx.x / lanes][place(me / beside, s, me % beside)];
            if constexpr (How == Fetch::single) {
#pragma unroll
                for (int c = 0; c < C; ++c)
                    copy_async<sizeof(T)>(&place_of_it->elements[c], from + min(c, this->available - 1) * int(sizeof(T)));
            } else {
                copy_async<sizeof(Loaded)>(place_of_it, from);
            }
        });
    }

    // The 16-byte block of number `block` in each vector of the warp's threads. Past the block's rows the last is copied
    // again, and for absent elements the tile's first.
    template <Fetch How>
    __device__ __forceinline__ void copy_blocks(uint32 leaf, uint32 lane, uint32 number, int to, uint32 block) const
    {
        constexpr uint32 in_a_row = beside * sizeof(Loaded) / vector_bytes;
        const uint32 bytes = block % in_a_row * vector_bytes, s = block / in_a_row % V, behind = block / in_a_row / V;
        const uint32 before = threadIdx.x % X / beside * (beside * sizeof(Loaded));  // of the warp in the tile
        const uint64 its_lane = first + behind * K - threadIdx.x % lanes / beside * K;
        const uint64 index = this->index_of(uint32(its_lane / Lanes), uint32(its_lane % Lanes), number) + s;
        const int64 stride = this->problem.reduced.stride[0];
        const char* start = tile + min(int(before + bytes), tile_bytes - int(vector_bytes));
        const char* address = start + int64(index) * stride;
        uint64 element = index;
#pragma unroll
        for (int t = 0; t < in_stage; ++t) {
            char* place_of_it = reinterpret_cast<char*>(&places.of[to + t][threadIdx.x / lanes][place(behind, s, 0)]) + bytes;
            copy_async<vector_bytes>(place_of_it, How == Fetch::whole || element < this->length ? address : start);
            address += this->next_vector(t) * stride;
            element += this->next_vector(t);
        }
    }
#endif
};
