"""The labelled pictures that sifts are judged on, and people's own photos without labels."""

import numpy as np
import pytest
from PIL import Image
from smallservice import LIGHT, Cast, frames, open_service

from blindsight.errors import InputError, StorageError, UnknownNameError
from blindsight.service.verification import collection, platform_data, shortages
from blindsight.sift.verificationset import VerificationSet


def photos(folder, count, seed=0):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(folder / f"{number}.png")


def test_classes_of_a_folder_are_attributes(tmp_path):
    photos(tmp_path / "smiling", 3)
    photos(tmp_path / "neutral", 2, seed=1)
    found = collection(str(tmp_path))
    assert found.attribute_names == ("neutral", "smiling")
    assert found.attributes.tolist() == [[1, 0]] * 2 + [[0, 1]] * 3


def test_a_table_names_pictures_and_attributes(tmp_path):
    photos(tmp_path / "in", 3)
    table = tmp_path / "labels.csv"
    table.write_text("file,person,smiling\nin/0.png,a,1\nin/1.png,a,0\nin/2.png,b,1\n")
    found = collection(str(table))
    assert found.attribute_names == ("smiling",)
    assert found.attributes[:, 0].tolist() == [1, 0, 1]


def test_a_second_start_reads_what_the_first_computed(tmp_path, monkeypatch):
    monkeypatch.setattr("blindsight.service.verification.PICTURES", 40)
    first = platform_data(None, None, cache=tmp_path)
    monkeypatch.setattr("blindsight.service.verification.faces", None)
    monkeypatch.setattr("blindsight.service.verification.prepare_data", None)
    again = platform_data(None, None, cache=tmp_path)
    assert (again.judging.digest, again.development.digest) == (first.judging.digest, first.development.digest)
    assert again.pipeline.fingerprint() == first.pipeline.fingerprint()
    assert (again.size, again.unchanging) == (first.size, first.unchanging)
    (kept,) = (tmp_path / "platform").glob("*.npz")
    kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(TypeError):  # damaged: it is computed again
        platform_data(None, None, cache=tmp_path)


def test_what_has_no_labels_is_refused_with_the_way_to_go(tmp_path):
    photos(tmp_path / "photos" / "one class", 2)
    with pytest.raises(InputError, match="--people"):
        collection(str(tmp_path / "photos"))
    with pytest.raises(StorageError, match="does not exist"):
        collection(str(tmp_path / "missing.csv"))
    with pytest.raises(UnknownNameError, match="faces"):
        collection("face")
    with pytest.raises(UnknownNameError, match="unchanging"):
        platform_data(collection("faces", count=60), None, cache=tmp_path, unchanging=["mood"])


def test_too_few_pictures_are_counted_and_what_is_needed_is_said():
    rng = np.random.default_rng(0)

    def rows(count, **labels):
        return VerificationSet(rng.normal(size=(count, 4)).astype(np.float32), labels, np.arange(count) // 2)

    def half(count, yes):
        return (np.arange(count) < yes).astype(np.int8)

    assert shortages(rows(2000, a=half(2000, 1000)), LIGHT) == ()
    few = " ".join(shortages(rows(300, a=half(300, 150), hat=half(300, 20)), LIGHT))
    assert "300 pictures of 150 people" in few
    assert "hat (20 with, 280 without) cannot be hidden" in few
    assert "a (150)" in few
    assert "256" in few
    alone = VerificationSet(rng.normal(size=(2000, 4)).astype(np.float32), {"a": half(2000, 1000)})
    assert any("single frames" in sentence for sentence in shortages(alone, LIGHT))


def test_photos_of_owners_are_taken_in_once(tmp_path):
    gateway = open_service(tmp_path / "service")
    ann, folder = Cast(gateway).ann, tmp_path / "people"
    (folder / "Ann").mkdir(parents=True)
    (folder / "nobody").mkdir()
    for number, content in enumerate(frames(2, seed=8)):
        (folder / "Ann" / f"{number}.png").write_bytes(content)
    (folder / "Ann" / "notes.txt").write_text("hello")
    before = gateway.frame_ids(ann)
    said = gateway.cameras.take_in(folder)
    assert [sentence.split()[0] for sentence in said] == ["Ann:", "Ann:", "nobody"]
    new = gateway.frame_ids(ann)[len(before) :]
    assert len(new) == 2
    gateway.delete_frame(ann, new[0])
    assert "new photo" not in " ".join(gateway.cameras.take_in(folder))
    assert gateway.frame_ids(ann) == (*before, new[1])
    (folder / "Ann" / "2.png").write_bytes(frames(1, seed=9)[0])
    assert "Ann: 1 new photo " in " ".join(gateway.cameras.take_in(folder))
    with pytest.raises(InputError, match="folders"):
        gateway.cameras.take_in(folder / "Ann")
    gateway.close()
