"""Small kernels in PTX that mutations begin with: between them they use most of what the simulator has.

Each takes two arrays of 1,024 bytes and a number, and runs in one block.
"""

from __future__ import annotations

__all__ = ["HEAD", "SMALL_KERNELS"]

HEAD = ".version 8.8\n.target sm_100\n.address_size 64\n"
_BLOCK = (
    """
.shared .align 4 .b8 partials[32];
.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry k(.param .u64 .ptr .align 4 a, .param .u64 b, .param .u32 n)
.maxntid 64, 1, 1
.minnctapersm 2
{
.reg .pred %p<6>;
.reg .b32 %r<24>;
.reg .f32 %f<12>;
.reg .b64 %rd<12>;
.shared .align 8 .b8 late[64];
.local .align 8 .b8 depot[16];
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [b];
ld.param.u32 %r1, [n];
cvta.to.global.u64 %rd3, %rd1;
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ntid.x;
mov.f32 %f1, 0f00000000;
mov.u32 %r4, %r2;
$loop:
setp.ge.u32 %p1, %r4, %r1;
@%p1 bra $folded;
mul.wide.u32 %rd4, %r4, 4;
add.s64 %rd5, %rd3, %rd4;
ld.global.nc.f32 %f2, [%rd5];
fma.rn.f32 %f1, %f2, 0f3F800000, %f1;
add.u32 %r4, %r4, %r3;
bra.uni $loop;
$folded:
mov.b32 %r5, %f1;
shfl.sync.bfly.b32 %r6|%p2, %r5, 16, 31, -1;
mov.b32 %f3, %r6;
add.f32 %f4, %f1, %f3;
mov.b32 %r7, %f4;
shfl.sync.down.b32 %r8, %r7, 8, 31, -1;
mov.b32 %f5, %r8;
add.f32 %f6, %f4, %f5;
st.local.v2.f32 [depot], {%f6, %f5};
ld.local.v2.f32 {%f7, %f8}, [depot];
and.b32 %r9, %r2, 31;
setp.ne.s32 %p3, %r9, 0;
shr.u32 %r10, %r2, 5;
shl.b32 %r11, %r10, 2;
mov.u32 %r12, partials;
add.u32 %r13, %r12, %r11;
@!%p3 st.shared.f32 [%r13], %f7;
bar.sync 0;
setp.ne.u32 %p4, %r2, 0;
@%p4 bra $done;
ld.shared.f32 %f9, [partials];
ld.shared.f32 %f10, [partials+4];
add.rn.f32 %f11, %f9, %f10;
atom.global.add.f32 %f1, [%rd2], %f11;
membar.gl;
red.relaxed.gpu.global.add.u32 [table+8], 1;
ld.const.u32 %r14, [table];
$done:
ret;
}
""",
    64,
)
_CALLS = (
    """
.func (.param .b32 result) twice(.param .b32 value)
{
.reg .b32 %r<4>;
ld.param.b32 %r1, [value];
add.s32 %r2, %r1, %r1;
st.param.b32 [result], %r2;
ret;
}
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .pred %p<4>;
.reg .b16 %h<4>;
.reg .b32 %r<16>;
.reg .b64 %rd<8>;
.reg .f64 %fd<6>;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [b];
mov.u32 %r1, %laneid;
and.b32 %r2, %r1, 3;
ts: .branchtargets L0, L1, L2, L0;
brx.idx.uni %r2, ts;
L0:
mov.u32 %r3, 1;
bra.uni L3;
L1:
popc.b32 %r3, %r1;
bra.uni L3;
L2:
mad.lo.s32 %r3, %r1, 3, 7;
L3:
{
.param .b32 in;
.param .b32 out;
st.param.b32 [in], %r3;
call.uni (out), twice, (in);
ld.param.b32 %r4, [out];
}
vote.sync.ballot.b32 %r5, %p1, -1;
setp.lt.and.s32 %p1|%p2, %r4, 9, !%p1;
selp.b32 %r6, %r4, %r5, %p1;
cvt.rn.f64.s32 %fd1, %r6;
div.rn.f64 %fd2, %fd1, 0d4008000000000000;
cvt.rzi.s32.f64 %r7, %fd2;
prmt.b32 %r8, %r7, %r6, 0x5410;
lop3.b32 %r9, %r8, %r7, %r6, 0x96;
bfe.u32 %r10, %r9, 4, 8;
cvt.u16.u32 %h1, %r10;
cvt.u32.u16 %r11, %h1;
redux.sync.add.s32 %r12, %r11, -1;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
st.global.u32 [%rd4], %r12;
atom.global.cas.b32 %r13, [%rd2], 0, %r12;
exit;
}
""",
    32,
)
_COPIES = (
    """
.extern .shared .align 16 .b8 tile[];
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .pred %p<4>;
.reg .b32 %r<12>;
.reg .b64 %rd<8>;
.shared .align 8 .b64 bar;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [b];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mov.u32 %r3, bar;
shl.b32 %r4, %r1, 2;
add.s32 %r5, %r2, %r4;
cvt.u64.u32 %rd3, %r4;
add.s64 %rd4, %rd1, %rd3;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r3], 32;
bar.sync 0;
cp.async.ca.shared.global [%r5], [%rd4], 4;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.u32 %r6, [%r5];
mbarrier.arrive.shared.b64 %rd5, [%r3];
$wait:
mbarrier.test_wait.shared.b64 %p2, [%r3], %rd5;
@!%p2 bra $wait;
add.u32 %r7, %r6, 1;
st.global.u32 [%rd4], %r7;
fence.acq_rel.gpu;
red.global.add.u32 [%rd2], %r7;
griddepcontrol.wait;
ret;
}
""",
    32,
)
SMALL_KERNELS = {"block": _BLOCK, "calls": _CALLS, "copies": _COPIES}
"""Texts without their heads, and the threads of a block."""
