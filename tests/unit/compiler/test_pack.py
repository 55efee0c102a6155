"""Packs of kernels: what was packed is found, and a file that was altered or cut anywhere is never another kernel."""

import hashlib

import pytest

from lowlevel_reduce.compiler import pack as packs
from lowlevel_reduce.compiler.cache import Stored, encode_entry, payload_offset
from lowlevel_reduce.compiler.pack import DamagedPackError, Pack, PackedEntry, packed


def entry_of(number, size=300):
    name = f"cubin-{hashlib.sha256(str(number).encode()).hexdigest()}.llr"
    payload = bytes((number + i) % 251 for i in range(size))
    return PackedEntry(name, encode_entry(name, {"number": number}, payload))


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a pack and returns its path."""

    def write(groups, data=None, spilled=()):
        path = tmp_path / "sm_90.pack"
        path.write_bytes(packed("sm_90", "1.2.3", groups, spilled) if data is None else data)
        return str(path)

    return write


def test_every_entry_is_found_and_no_other(write, monkeypatch):
    monkeypatch.setattr(packs, "BLOCK_BYTES", 1000)  # two entries, with what aligns their payloads
    groups = [[entry_of(number) for number in range(7)], [entry_of(number) for number in range(7, 20)]]
    found = Pack(write(groups))
    assert (found.architecture, found.version, len(found)) == ("sm_90", "1.2.3", 20)
    assert len(found.blocks) == 4 + 7
    for number in [*range(20), 3, 19, 0]:
        stored = found.load(entry_of(number).name)
        assert stored.metadata == {"number": number}
        assert stored.payload == bytes((number + i) % 251 for i in range(300))
    assert all(found.load(entry_of(number).name) is None for number in range(20, 60))
    found.verify()


def test_payloads_begin_at_multiples_of_an_instruction(write):
    entries = [entry_of(number, size=100 + number) for number in range(5)]
    found = Pack(write([entries]))
    (block,) = found.blocks
    for entry in entries:
        place = found.place(entry.name)
        assert (place.offset + payload_offset(entry.data)) % 16 == 0
        assert place.offset + place.size <= block.unpacked


def test_a_block_is_unpacked_as_far_as_needed_and_then_twice_as_far(write, monkeypatch):
    found, asked = Pack(write([[entry_of(number, 5000) for number in range(10)]])), []
    monkeypatch.setattr(packs, "decode_entry", lambda name, data: asked.append(len(found._last[1])) or Stored({}, data))
    (block,) = found.blocks
    ends = [place.offset + place.size for place in (found.place(entry_of(number).name) for number in range(10))]
    for number in (1, 0, 1, 2, 3, 4, 8, 9, 0):
        found.load(entry_of(number).name)
    assert asked == [ends[1]] * 3 + [2 * ends[1]] * 2 + [4 * ends[1]] + [block.unpacked] * 3
    found = Pack(found.path)
    asked.clear()
    for number in (0, 5, 9):
        found.load(entry_of(number).name)
    assert asked == [ends[0], ends[5], block.unpacked]


def test_what_spilled_is_known_by_name_alone(write):
    kept, left_out = entry_of(1), entry_of(2)
    found = Pack(write([[kept]], spilled=[left_out.name, kept.name]))
    assert (found.is_spilled(left_out.name), found.load(left_out.name)) == (True, None)
    assert not found.is_spilled(kept.name)  # what is there is used
    assert not found.is_spilled(entry_of(3).name)
    assert len(found) == 1
    found.verify()


def test_an_entry_that_comes_again_is_kept_once(write):
    assert len(Pack(write([[entry_of(1), entry_of(2), entry_of(1)], [entry_of(2), entry_of(3)]]))) == 3


def test_the_same_entries_make_the_same_file():
    groups = [[entry_of(number) for number in range(5)]]
    assert packed("sm_90", "1", groups) == packed("sm_90", "1", groups)


def test_no_entries_are_a_pack_too(write):
    assert Pack(write([])).load(entry_of(1).name) is None


def test_a_file_cut_anywhere_is_refused_or_lacks_nothing(write):
    entries = [entry_of(number) for number in range(3)]
    whole = packed("sm_90", "1", [entries])
    for length in range(0, len(whole), 7):
        with pytest.raises(DamagedPackError):
            Pack(write([], whole[:length])).verify()


def test_a_byte_changed_anywhere_is_refused_or_changes_nothing(write):
    entries = [entry_of(number) for number in range(3)]
    whole = packed("sm_90", "1", [entries])
    refused = 0
    for place in range(0, len(whole), 3):
        altered = bytearray(whole)
        altered[place] ^= 0x41
        try:
            found = Pack(write([], bytes(altered)))
            for number, entry in enumerate(entries):
                assert found.load(entry.name).metadata == {"number": number}, place
        except DamagedPackError:
            refused += 1
    assert refused > len(range(0, len(whole), 3)) * 0.9  # what is left is padding of xz that no check covers


def test_an_entry_under_the_name_of_another_is_refused(write):
    one, two = entry_of(1), entry_of(2)
    with pytest.raises(DamagedPackError, match="does not match its digest"):
        Pack(write([[PackedEntry(one.name, two.data)]])).load(one.name)


@pytest.mark.parametrize("content", [b"", b"x" * 50, b"LLRPACK\0" + b"\xff" * 100])
def test_a_file_that_is_no_pack_is_refused(write, content):
    with pytest.raises(DamagedPackError):
        Pack(write([], content))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DamagedPackError, match="cannot be read"):
        Pack(str(tmp_path / "nothing"))
