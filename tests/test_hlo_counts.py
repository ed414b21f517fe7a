"""Counts of `benchmarks/gpu_programs.py` in the HLO of a program."""

from _hlo import count, Loop, Range, Work


TEXT = """\
HloModule jit_step, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %sine.1 = f32[8]{0} sine(%p)
}

%test (state: (s32[], f32[8])) -> pred[] {
  %state = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  ROOT %less = pred[] fusion(%i), kind=kLoop, calls=%fused
}

%inner (state.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.1 = (s32[], f32[8]{0}) parameter(0)
  %x.1 = f32[8]{0} get-tuple-element(%state.1), index=1
  %none = f32[0,8]{1,0} copy(%x.1)
  %y.1 = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused
  ROOT %out.1 = (s32[], /*index=1*/f32[8]{0}) tuple(%x.1, %y.1)
}

%yes (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} fusion(%a), kind=kLoop, calls=%fused
  ROOT %c = f32[8]{0} custom-call(%b), custom_call_target="cublas$gemm"
}

%no (d: f32[8]) -> f32[8] {
  ROOT %d = f32[8]{0} parameter(0)
}

%outer (state.2: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.2 = (s32[], f32[8]{0}) parameter(0)
  %w = (s32[], f32[8]{0}) while(%state.2), condition=%test, body=%inner, metadata={op_name="in"}
  %x.2 = f32[8]{0} get-tuple-element(%w), index=1
  %p.2 = pred[] fusion(%x.2), kind=kLoop, calls=%fused
  %z = f32[8]{0} conditional(%p.2, %x.2, %x.2), true_computation=%yes, false_computation=%no
  ROOT %out.2 = (s32[], f32[8]{0}) tuple(%x.2, %z)
}

ENTRY %main (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  %copy = f32[8]{0} copy(%q)
  %start = (s32[], f32[8]{0}) tuple(%q, %copy)
  %f = (s32[], f32[8]{0}) while(%start), condition=%test, body=%inner, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %o = (s32[], f32[8]{0}) while(%f), condition=%test, body=%outer, metadata={op_name="out"}
}
"""  # noqa: E501


def _work(kernels, copies, round_trips):
    return Work(Range(*kernels), Range(*copies), Range(*round_trips))


def test_count():
    program = count(TEXT)
    # Five known passes, and the first test of the loop that depends on data.
    assert program.work == _work((6, 6), (1, 1), (1, 1))
    assert program.fixed_loops == 1
    inner = Loop("in", 1, _work((2, 2), (0, 0), (1, 1)))
    # First test of the loop inside, a predicate, one branch or the other, its own test.
    outer = Loop("out", 0, _work((3, 5), (0, 0), (3, 3)))
    assert program.loops == [inner, outer]
    assert program.per_pass(nested=False) == outer.work
    assert program.per_pass(nested=True) == inner.work
    assert str(outer.work.kernels) == "3-5"
