"""Whatever a file holds, it becomes upright 8-bit RGB or a named reason; duplicates go; memory stays bounded."""

import errno
import io
import os
import stat
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from blindsight.data.images import decode, read_images
from blindsight.errors import DataError, InputError, StorageError, UnknownNameError
from blindsight.progress import silent


def encoded(picture, kind="PNG", **options):
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def plain(colour, size=(8, 8)):
    return Image.new("RGB", size, colour)


def noisy(seed, size=32):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8))


def png_header(width, height):
    """A well-formed PNG that claims a size and holds next to nothing."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def entries(*contents):
    return [(f"{number}.png", content) for number, content in enumerate(contents)]


GREY = Image.fromarray(np.full((8, 8), 200, dtype=np.uint8))
DEEP = Image.fromarray(np.full((8, 8), 200 * 257, dtype=np.uint16))
HALF_RED = Image.new("RGBA", (8, 8), (255, 0, 0, 128))


@pytest.mark.parametrize(
    ("content", "colour"),
    [
        pytest.param(encoded(GREY), (200, 200, 200), id="grey"),
        pytest.param(encoded(GREY.point(lambda value: 255 * (value > 99)).convert("1")), (255, 255, 255), id="one bit"),
        pytest.param(encoded(DEEP), (200, 200, 200), id="16-bit PNG"),
        pytest.param(encoded(DEEP, "TIFF"), (200, 200, 200), id="16-bit TIFF"),
        pytest.param(b"P5 1 1 1023\n" + struct.pack(">H", 1023), (255, 255, 255), id="10-bit PGM"),
        pytest.param(encoded(plain((10, 20, 30)).quantize(4)), (10, 20, 30), id="palette"),
        pytest.param(encoded(HALF_RED), (255, 127, 127), id="half transparent red over white"),
        pytest.param(encoded(Image.new("LA", (8, 8), (0, 0))), (255, 255, 255), id="transparent grey"),
        pytest.param(encoded(Image.new("P", (8, 8), 0), transparency=b"\0"), (255, 255, 255), id="transparent palette"),
        pytest.param(encoded(plain((0, 0, 0)), transparency=(0, 0, 0)), (255, 255, 255), id="transparent colour"),
        pytest.param(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"), (255, 0, 0), id="CMYK"),
        pytest.param(encoded(plain((9, 8, 7)), "WEBP", lossless=True), (9, 8, 7), id="WebP"),
        pytest.param(encoded(plain((9, 8, 7)), "BMP"), (9, 8, 7), id="BMP"),
        pytest.param(
            encoded(plain((250, 0, 0)), "GIF", save_all=True, append_images=[plain((0, 0, 250))]),
            (250, 0, 0),
            id="first frame of an animation",
        ),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(content, colour):
    pixels = decode(content, size=4)
    assert pixels.shape == (4, 4, 3)
    assert pixels.dtype == np.uint8
    assert {tuple(pixel) for pixel in pixels.reshape(-1, 3).tolist()} == {colour}


def test_16_bit_grey_keeps_its_shades():
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    pixels = decode(encoded(Image.fromarray(ramp)), size=256)
    assert np.array_equal(pixels[..., 0], np.rint(ramp / 257))
    assert np.array_equal(pixels[..., 0], pixels[..., 2])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_obeyed(orientation):
    """The stored pixels are made so that, shown as EXIF says, the red quarter is at the top left."""
    upright = np.zeros((16, 16, 3), dtype=np.uint8)
    upright[:8, :8, 0] = 255
    upright[8:, :8, 1] = 255  # green below it tells a turn from a flip
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: np.rot90(a, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(undo[orientation](upright)))
    pixels = decode(encoded(stored, "PNG", exif=exif), size=16)
    assert np.array_equal(pixels, upright)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_does_not_lose_the_picture():
    content = encoded(plain((255, 255, 255)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert np.all(decode(content, size=8) == 255)


def test_a_wide_picture_is_cropped_at_its_centre_or_stretched():
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 255
    assert np.all(decode(encoded(Image.fromarray(wide)), size=10, fit="crop") == 255)
    stretched = decode(encoded(Image.fromarray(wide)), size=30, fit="stretch")
    assert np.array_equal(stretched[0, :, 0] > 127, wide[0, :, 0] > 127)


JPEG = encoded(noisy(0, 64), "JPEG")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "empty", id="zero bytes"),
        pytest.param(b"these are words, not pixels", "not a picture", id="text"),
        pytest.param(JPEG[: len(JPEG) // 2], "truncated", id="half a JPEG"),
        pytest.param(encoded(noisy(0))[:200], "truncated", id="a bit of a PNG"),
        pytest.param(png_header(8, 8), "truncated", id="PNG without its rows"),
        pytest.param(png_header(60_000, 60_000), "64 million", id="bomb"),
        pytest.param(png_header(10_000, 9_000), "64 million", id="beyond Pillow's warning"),
        pytest.param(png_header(8_001, 8_000), "64 million", id="just too large"),
        pytest.param(encoded(Image.new("F", (8, 8), 0.5), "TIFF"), "floating-point", id="floats"),
        pytest.param(encoded(Image.new("I", (8, 8), 70_000), "TIFF"), "outside 0..65535", id="32 bits"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "not a picture", id="a program"),
    ],
)
def test_unreadable_pictures_have_a_reason(content, reason):
    with pytest.raises(DataError, match=reason):
        decode(content, size=8)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, len(JPEG) - 1), st.binary(min_size=1, max_size=64), st.integers(0, len(JPEG)))
def test_no_damage_raises_anything_else(place, damage, length):
    content = (JPEG[:place] + damage + JPEG[place + len(damage) :])[:length]
    with suppress(DataError):
        assert decode(content, size=8).shape == (8, 8, 3)


def test_files_that_are_not_there_or_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    encoded_file = tmp_path / "real.png"
    encoded_file.write_bytes(encoded(noisy(1)))
    names = ["gone.png", "pipe.png", "loop.png", ".", "x" * 300 + ".png", "real.png"]
    found = read_images([(name, tmp_path / name) for name in names], size=8)
    assert found.rows.tolist() == [5]
    assert [text.split(": ")[0] for text in found.skipped] == names[:5]
    assert found.skipped[0] == "gone.png: no such file or directory"
    assert found.skipped[1] == "pipe.png: not a file"
    assert str(tmp_path) not in "".join(found.skipped)


def test_unreadable_entries_never_stop_the_rest():
    good = [encoded(noisy(seed)) for seed in range(20)]
    mixed = [content for pair in zip(good, [b"words"] * 20, strict=True) for content in pair]
    reports = []
    found = read_images(entries(*mixed), size=16, progress=lambda *report: reports.append(report))
    assert found.rows.tolist() == list(range(0, 40, 2))
    assert len(found.skipped) == 20
    assert found.skipped[0].startswith("1.png: not a picture")
    for row, content in enumerate(good):
        assert np.array_equal(found.images[row], decode(content, size=16))
    assert reports[-1] == ("decoding pictures", 40, 40)


def test_the_same_pixels_in_other_clothes_are_duplicates():
    exif = Image.Exif()
    exif[0x010E] = "another description"
    same = [
        encoded(noisy(3)),
        encoded(noisy(3), compress_level=1, exif=exif),
        encoded(noisy(3), "BMP"),
        encoded(noisy(3), "WEBP", lossless=True),
    ]
    other = [
        encoded(noisy(4)),
        encoded(noisy(3).resize((64, 64))),
        encoded(noisy(3).transpose(Image.Transpose.ROTATE_90)),
    ]
    found = read_images(entries(*same, *other), size=8)
    assert found.rows.tolist() == [0, 4, 5, 6]
    assert (found.duplicates, found.contradicting) == (3, 0)


def test_pixels_of_another_shape_are_no_duplicates():
    """8 x 2 and 4 x 4 white pixels are the same bytes."""
    found = read_images(entries(encoded(plain((255,) * 3, (8, 2))), encoded(plain((255,) * 3, (4, 4)))), size=4)
    assert found.rows.tolist() == [0, 1]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1), st.integers(-1, 1)), min_size=1, max_size=12))
def test_what_is_kept_agrees_with_brute_force(rows):
    contents = [encoded(plain((40 * picture, 0, 0))) for picture, _, _ in rows]
    kept, clashing = set(), 0
    for picture in {row[0] for row in rows}:
        copies = [(index, row[1:]) for index, row in enumerate(rows) if row[0] == picture]
        clash = any(
            -1 not in (a, b) and a != b for _, one in copies for _, two in copies for a, b in zip(one, two, strict=True)
        )
        if clash:
            clashing += len(copies)
        else:
            kept.add(max(copies, key=lambda copy: (sum(value != -1 for value in copy[1]), -copy[0]))[0])
    said = np.array([row[1:] for row in rows])
    if not kept:
        with pytest.raises(DataError, match="contradicting"):
            read_images(entries(*contents), size=2, annotations=said)
    else:
        found = read_images(entries(*contents), size=2, annotations=said)
        assert found.rows.tolist() == sorted(kept)
        assert (found.duplicates, found.contradicting) == (len(rows) - len(kept), clashing)


def test_nothing_readable_names_the_place_and_the_first_reasons():
    with pytest.raises(DataError, match=r"holidays .* 0.png: empty; .*2 more"):
        read_images(entries(*[b""] * 5), where="holidays")
    with pytest.raises(DataError, match="holidays"):
        read_images([], where="holidays")


def test_sizes_and_fits_are_checked():
    with pytest.raises(InputError, match="4096"):
        decode(JPEG, size=0)
    with pytest.raises(UnknownNameError, match="'crop'"):
        read_images(entries(JPEG), size=8, fit="crp")


def mixed_bag():
    """Pictures 0..19 twice over with two unreadable ones between; picture 7 contradicts itself."""
    contents = [encoded(noisy(seed % 20)) for seed in range(40)]
    contents[11:11] = [b"", b"words"]
    said = np.zeros((42, 1), dtype=np.int64)
    said[7] = 1
    return entries(*contents), said


def test_past_the_memory_limit_the_pixels_lie_in_a_private_file(tmp_path):
    bag, said = mixed_bag()
    held = read_images(bag, size=16, annotations=said)
    mapped = read_images(bag, size=16, annotations=said, limit_memory=42 * 16 * 16 * 3 - 1, cache=tmp_path)
    assert isinstance(mapped.images, np.memmap)
    assert not isinstance(held.images, np.memmap)
    assert not mapped.images.flags.writeable
    assert np.array_equal(mapped.images, held.images)
    assert mapped.rows.tolist() == held.rows.tolist() == [row for row in range(22) if row not in (7, 11, 12)]
    assert (mapped.skipped, mapped.duplicates) == (held.skipped, held.duplicates)
    (file,) = (tmp_path / "pixels").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert np.array_equal(np.load(file), held.images)
    assert file.stat().st_size < held.images.nbytes + 4096


def test_reading_again_replaces_the_file_under_a_reader(tmp_path):
    bag, _ = mixed_bag()
    first = read_images(bag, size=16, limit_memory=0, cache=tmp_path).images
    before = np.array(first)
    second = read_images(bag, size=16, limit_memory=0, cache=tmp_path).images
    assert np.array_equal(first, before)
    assert np.array_equal(second, before)
    assert len(list((tmp_path / "pixels").iterdir())) == 1
    read_images(bag, size=8, limit_memory=0, cache=tmp_path)
    read_images(bag[:5], size=16, limit_memory=0, cache=tmp_path)
    assert len(list((tmp_path / "pixels").iterdir())) == 3


def test_the_cache_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    read_images(entries(JPEG), size=8, limit_memory=0)
    assert len(list((tmp_path / "pixels").iterdir())) == 1


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("contents", "progress", "error"), [([b"", b""], silent, DataError), ([JPEG], interrupt, KeyboardInterrupt)]
)
def test_a_reading_that_fails_leaves_no_file(tmp_path, contents, progress, error):
    with pytest.raises(error):
        read_images(entries(*contents), size=8, limit_memory=0, cache=tmp_path, progress=progress)
    assert list((tmp_path / "pixels").iterdir()) == []


def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="full"):
        read_images(mixed_bag()[0], size=8, limit_memory=0, cache=tmp_path)
    assert list((tmp_path / "pixels").iterdir()) == []
