// The neighbouring rows of one thread of a block, fetched ahead of their folds where they can be copied.
#pragma once
#include "column_copies.cuh"

template <class Op, class Kept, int C, int Lanes, int Steps, int K, int X, int Threads, CopiedBy By>
struct ColumnsAhead : ColumnCopies<Op, Kept, C, Lanes, Steps, K, X, Threads, By> {
    using Copier = ColumnCopies<Op, Kept, C, Lanes, Steps, K, X, Threads, By>;
    using typename Copier::A;
    using typename Copier::Loaded;
    using typename Copier::T;
    using Copier::ahead, Copier::beside, Copier::depth, Copier::in_stage, Copier::stages, Copier::V, Copier::vectors;
    using Copier::Copier, Copier::first, Copier::tile, Copier::tile_bytes;

    // Folds the thread's lanes one after the other, and calls lane_done(a, j) with the j-th of each of its rows. All threads of
    // the block call it, and call `lane_done` together.
    template <class LaneDone> __device__ __forceinline__ void fold(LaneDone lane_done) const
    {
#if __CUDA_ARCH__ >= 800
        if constexpr (By != CopiedBy::nobody)
            if (all_agree(this->are_copied())) return fold_copied(lane_done);
#endif
#pragma unroll 1
        for (uint32 j = 0; j < K; ++j) {
            const uint64 number = first + threadIdx.x % lanes / beside + j * depth;
            A a[C];
            this->template fold_lanes<1, By != CopiedBy::nobody>(uint32(number / Lanes), uint32(number % Lanes), a);
            lane_done(a, j);
        }
    }

private:
#if __CUDA_ARCH__ >= 800
    template <class LaneDone> __device__ __forceinline__ void fold_copied(LaneDone lane_done) const
    {
        const uint32 leaf = uint32(first / Lanes), lane = uint32(first % Lanes) + threadIdx.x % lanes / beside;
        const uint64 last = (first / (depth * K) + 1) * (depth * K);  // lanes of this block and those before
        const bool block_is_whole = (last + Lanes - 1) / Lanes * (Lanes * Steps * V) <= this->length;
        if (all_agree(block_is_whole)) fold_ahead<Fetch::whole>(leaf, lane, lane_done);
        else fold_ahead<Fetch::part>(leaf, lane, lane_done);
    }

    // Reads the thread's slots of one vector from shared memory.
    __device__ __forceinline__ void take(typename Copier::Slots& v, int from) const
    {
        const uint32 me = threadIdx.x % lanes;
        if constexpr (By == CopiedBy::teams) {
            const uint32 columns = tile_bytes / sizeof(T), mine = uint32(this->begin - tile) / sizeof(T);
            uint32 first = me / beside * V * columns + mine;
            // Or the compiler would keep the places of all slots in registers, of which there are many.
            if constexpr (gathers<T>) asm volatile("" : "+r"(first));
#pragma unroll
            for (int s = 0; s < V; ++s) v.of[s] = take_across(this->run(from), first + s * columns);
        } else {
#pragma unroll
            for (int s = 0; s < V; ++s)
                v.of[s] = this->places.of[from][threadIdx.x / lanes][Copier::place(me / beside, s, me % beside)];
        }
        v.gather();
    }

    // Reads an element of each row, of which the first has this number in a team's vector. Bytes are read by the word or two
    // that hold them: what this brings for rows that do not exist has no meaning.
    __device__ __forceinline__ Loaded take_across(const T* vector, uint32 number) const
    {
        Loaded v;
        if constexpr (sizeof(v) == 4 && sizeof(T) == 1) {
            const auto* word = reinterpret_cast<const uint32*>(vector);
            v.whole = __funnelshift_r(word[number / 4], word[(number + this->available - 1) / 4], number * 8);
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) v.elements[c] = vector[number + min(c, this->available - 1)];
        }
        return v;
    }

    // While a stage is folded, those after it are copied, the last of them to the places of the stage folded before; and a
    // second array's elements that go with the next stage are loaded. Of bytes, of which a stage is much code, the few blocks at
    // the end of columns fold all stages by the same; with other elements that takes up to a tenth longer.
    template <Fetch How, class LaneDone>
    __device__ __forceinline__ void fold_ahead(uint32 leaf, uint32 lane, LaneDone lane_done) const
    {
        constexpr int rounds = K * Steps / vectors;
        LaneCounter<Op, log2_of(Steps / in_stage)> counters[C];
        this->template prepare<How>(counters);
        constexpr bool one_ahead = sizeof(typename Copier::Seconds) * in_stage <= 32;  // of a second array
        typename Copier::Seconds next[in_stage];
        if (one_ahead) this->template load_seconds<How>(next, leaf, lane, 0);
#pragma unroll
        for (int stage = 0; stage < ahead; ++stage) this->template copy<How>(leaf, stage * in_stage, stage * in_stage);
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
#pragma unroll(How == Fetch::whole || !gathers<T> ? stages : 1)
            for (int stage = 0; stage < stages; ++stage) {
                const uint32 number = round * vectors + stage * in_stage;
                typename Copier::Seconds y[in_stage];
                if (!one_ahead) this->template load_seconds<How>(next, leaf, lane, number);
#pragma unroll
                for (int t = 0; t < in_stage; ++t) y[t] = next[t];
                if (one_ahead && (stage + 1 < stages || round + 1 < rounds))
                    this->template load_seconds<How>(next, leaf, lane, number + in_stage);
                if constexpr (ahead > 0) wait_for_copies<ahead - 1>();
                Copier::meet();
                if (stage + ahead < stages || round + 1 < rounds)
                    this->template copy<How>(leaf, number + ahead * in_stage, (stage + ahead) % stages * in_stage);
                else commit_copies();  // an empty group, so that the wait counts as many
                if constexpr (ahead == 0) {
                    wait_for_copies<0>();
                    Copier::meet();
                }
                typename Copier::Slots v[in_stage];
#pragma unroll
                for (int t = 0; t < in_stage; ++t) take(v[t], stage * in_stage + t);
                this->template fold_rows<How>(counters, v, y, leaf, lane, number, number % Steps / in_stage);
                if ((number + in_stage) % Steps == 0) {
                    A a[C];
#pragma unroll
                    for (int c = 0; c < C; ++c) a[c] = counters[c].result();
                    lane_done(a, number / Steps);
                }
            }
        }
    }
#endif
};
