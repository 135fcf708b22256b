"""The command line as a stranger meets it: help, tables, JSON, exit codes and one-sentence errors."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image

from blindsight.cli import run
from blindsight.dp import GaussianMechanism, LaplaceMechanism, Ledger

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def document(capsys: Capture) -> dict[str, object]:
    return json.loads(capsys.readouterr().out)


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"blindsight {version('blindsight-vision')}\n"


def test_help_names_every_command(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("demo", "data", "ledger"))


def test_no_arguments_prints_help_and_counts_as_wrong_usage(capsys: Capture) -> None:
    assert run([]) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["data", "show"], ["data", "show", "faces", "--nonsense"]])
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


def test_unknown_collection_suggests_the_nearest(capsys: Capture) -> None:
    assert run(["data", "info", "face"]) == 2
    assert "Did you mean 'faces'?" in capsys.readouterr().err


def test_unknown_attribute_suggests_the_nearest(capsys: Capture, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    assert run(["data", "show", "faces", "-n", "20", "--attributes", "smilling", "--out", str(sheet)]) == 2
    assert "Did you mean 'smiling'?" in capsys.readouterr().err
    assert not sheet.exists()


def test_error_as_json_is_one_document(capsys: Capture) -> None:
    assert run(["data", "info", "face", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 2
    assert "error" in json.loads(captured.out)


def test_debug_shows_where_an_error_comes_from(capsys: Capture) -> None:
    assert run(["data", "info", "face", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(["data", "info", "face"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_unexpected_error_is_still_one_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindsight.cli.data.catalogue", lambda: 1 / 0)
    assert run(["data", "list"]) == 1
    assert capsys.readouterr().err == "error: unexpected ZeroDivisionError: division by zero (--debug shows where)\n"


def test_interrupted_run_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("blindsight.cli.data.catalogue", interrupt)
    assert run(["data", "list"]) == 1
    assert "interrupted" in capsys.readouterr().err


def test_list_tells_what_is_here(capsys: Capture) -> None:
    assert run(["data", "list", "--json"]) == 0
    here = {entry["name"]: entry["here"] for entry in document(capsys)["collections"]}
    assert here["faces"]
    assert not here["cifar10"]
    assert not here["utkface"]


def test_list_is_a_table_for_people(capsys: Capture) -> None:
    assert run(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "faces" in out
    assert "bundled" in out
    assert "{" not in out


def test_collection_that_was_not_fetched_says_how(capsys: Capture) -> None:
    assert run(["data", "info", "cifar10"]) == 1
    assert "blindsight data fetch cifar10" in capsys.readouterr().err


def test_info_describes_faces(capsys: Capture) -> None:
    assert run(["data", "info", "faces", "-n", "30", "--json"]) == 0
    described = document(capsys)
    assert described["pictures"] == 30
    assert set(described["attributes"]) >= {"male", "smiling", "eyeglasses"}


def test_info_of_a_folder_reports_broken_pictures(capsys: Capture, tmp_path: Path) -> None:
    for kind, colour in (("cats", "red"), ("dogs", "blue")):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(tmp_path / "pets" / kind / "one.png")
    (tmp_path / "pets" / "dogs" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    assert run(["data", "info", "folder", "--path", str(tmp_path / "pets"), "--json"]) == 0
    described = document(capsys)
    assert (described["pictures"], described["classes"]) == (2, 2)
    assert described["skipped"][0].startswith("dogs/broken.jpg: ")


def test_show_writes_a_contact_sheet(capsys: Capture, tmp_path: Path) -> None:
    sheet = tmp_path / "new" / "sheet.png"
    asked = ["data", "show", "faces", "-n", "40", "--attributes", "smiling,eyeglasses", "--out", str(sheet), "--json"]
    assert run(asked) == 0
    described = document(capsys)
    with Image.open(sheet) as picture:
        assert picture.size == (described["width"], described["height"])


def test_show_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    sheets = [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"]
    for sheet, seed in zip(sheets, ("1", "1", "2"), strict=True):
        assert run(["data", "show", "faces", "-n", "8", "--seed", seed, "--out", str(sheet)]) == 0
    assert sheets[0].read_bytes() == sheets[1].read_bytes()
    assert sheets[0].read_bytes() != sheets[2].read_bytes()


def test_progress_goes_to_standard_error(capsys: Capture, tmp_path: Path) -> None:
    assert run(["data", "features", "faces", "-n", "40", "--out", str(tmp_path / "f.npz"), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rows"] == 40
    assert captured.err


def test_unknown_pipeline_suggests_the_nearest(capsys: Capture) -> None:
    assert run(["data", "features", "digits", "-n", "10", "--features", "pixel"]) == 2
    assert "Did you mean 'pixels'?" in capsys.readouterr().err


def test_ledger_shows_what_was_spent(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "privacy.ledger"
    ledger = Ledger(path)
    ledger.set_budget("album", unit="person", neighbours="replace", epsilon=2.0, delta=0.0)
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=0.5)
    ledger.release(mechanism, [1.0], scope="album", unit="person", neighbours="replace", purpose="a test")
    assert run(["ledger", "show", str(path), "--delta", "1e-6", "--json"]) == 0
    scope = document(capsys)["scopes"][0]
    assert (scope["scope"], scope["unit"], scope["releases"], scope["budget"]) == ("album", "person", 1, 2.0)
    assert scope["epsilon"] == pytest.approx(0.5)


def test_missing_ledger_gets_a_sentence_and_is_not_made(capsys: Capture, tmp_path: Path) -> None:
    assert run(["ledger", "show", str(tmp_path / "none"), "--delta", "1e-6"]) == 1
    assert "there is no ledger" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("garbage", [b"\xff\xd8\xff\xe0 a photo\nof several\0lines", b"one line", b"a\n\0\0\n", b""])
def test_showing_what_is_no_ledger_leaves_it_alone(capsys: Capture, tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(garbage)
    assert run(["ledger", "show", str(path), "--delta", "1e-6"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert files_in(tmp_path) == {"photo.jpg": garbage}


@pytest.mark.parametrize("torn", [b"", b'{"kind":"spend","loss":{"epsi', b"\0" * 30 + b"}\n"])
def test_showing_a_ledger_writes_nothing(capsys: Capture, tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "privacy.ledger"
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=0.5)
    Ledger(path).release(mechanism, [1.0], scope="album", unit="person", neighbours="replace", purpose="a test")
    (tmp_path / "privacy.ledger.lock").unlink(missing_ok=True)
    path.write_bytes(path.read_bytes() + torn)
    before = files_in(tmp_path)
    assert run(["ledger", "show", str(path), "--delta", "1e-6", "--json"]) == 0
    shown = document(capsys)
    assert (shown["recovered"] is not None) == bool(torn)
    assert shown["scopes"][0]["releases"] == 1
    assert files_in(tmp_path) == before


def test_infinite_epsilon_is_a_word_in_json(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "privacy.ledger"
    mechanism = GaussianMechanism(sensitivity=1.0, sigma=2.0)
    Ledger(path).release(mechanism, [1.0], scope="album", unit="person", neighbours="replace", purpose="a test")
    assert run(["ledger", "show", str(path), "--delta", "0", "--json"]) == 0
    scope = document(capsys)["scopes"][0]
    assert (scope["epsilon"], scope["epsilon_basic"]) == ("infinity", "infinity")


def test_program_can_be_started_as_users_start_it() -> None:
    program = Path(sys.executable).with_name("blindsight")
    done = subprocess.run([program, "data", "info", "face"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'faces'?" in done.stderr


def test_cli_starts_without_heavy_libraries() -> None:
    probe = (
        "import sys, blindsight, blindsight.cli\n"
        "heavy = {'torch', 'tenseal', 'flwr', 'onnxruntime', 'fastapi', 'psycopg', 'matplotlib.pyplot'}\n"
        "sys.exit(' '.join(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_reader_options_can_be_given(capsys: Capture, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "one.png")
    (tmp_path / "table.csv").write_text("vm\none.png\n")
    asked = ["data", "info", "csv", "--path", str(tmp_path / "table.csv"), "--json"]
    assert run(asked) == 2
    assert "path_column" in document(capsys)["error"]
    assert run([*asked, "-o", "path_column=vm"]) == 0
    assert document(capsys)["pictures"] == 1


def test_malformed_reader_option_gets_a_sentence(capsys: Capture) -> None:
    assert run(["data", "info", "faces", "-o", "label"]) == 2
    assert "must look like KEY=VALUE; got 'label'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["random_state=3", "size=5", "n=3", "pictures_per_person=x"])
def test_options_that_are_not_a_readers_get_a_sentence(option: str, capsys: Capture) -> None:
    assert run(["data", "info", "faces", "-n", "5", "-o", option]) == 2
    captured = capsys.readouterr()
    assert "unexpected" not in captured.err
    assert option.split("=")[0] in captured.err
