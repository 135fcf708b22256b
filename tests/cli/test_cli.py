"""The command line as a stranger meets it: help, tables, JSON, exit codes and one-sentence errors; data and ledgers."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from PIL import Image

from blindsight.cli import app, run
from blindsight.dp import GaussianMechanism, LaplaceMechanism, Ledger

ALBUM = {"scope": "album", "unit": "person", "neighbours": "replace", "purpose": "a test"}


def test_version_and_help(blindsight):
    assert blindsight("--version").out == f"blindsight {version('blindsight-vision')}\n"
    said = blindsight("--help").out
    assert all(word in said for word in ("demo", "data", "learn", "search", "sift", "audit", "ledger", "federation"))
    assert "Usage" in blindsight(code=2).out


@pytest.mark.parametrize("words", [["nonsense"], ["data", "show"], ["data", "show", "faces", "--nonsense"]])
def test_wrong_usage_is_one_line_and_exit_code_2(words, blindsight):
    said = blindsight(*words, code=2)
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("again", [["-n", "30"], ["--count", "30"]])
def test_an_option_with_one_value_is_given_once(again, blindsight):
    said = blindsight("data", "info", "faces", "-n", "20", *again, "--json", code=2)
    assert "--count takes one value" in said.document["error"]
    blindsight("data", "list", "--json", "--json")  # a flag says the same twice


@pytest.mark.parametrize(
    "words",
    [
        ["learn", "classifier", "--epsilon", "nan", "--delta", "1e-5", "--unit", "record", "--clip", "1"],
        ["papers", "dphe", "compare", "--epsilon", "1", "--delta", "NaN"],
        ["search", "build", "photos", "--epsilon", "nan"],
        ["ledger", "show", "privacy.ledger", "--delta", "nan"],
        ["sift", "verify", "out/sift", "--threshold", "nan"],
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_what_is_not_a_number_is_refused_by_the_options_name(words, blindsight):
    said = blindsight(*words, code=2).err
    assert f"'{words[[word.lower() for word in words].index('nan') - 1]}'" in said
    assert "got nan" in said


def test_errors_are_a_sentence_a_document_or_a_traceback(blindsight):
    said = blindsight("data", "info", "face", code=2)
    assert "Did you mean 'faces'?" in said.err
    assert "Traceback" not in said.err
    found = blindsight("data", "info", "face", "--json", code=2).document
    assert found["exit_code"] == 2
    assert "face" in found["error"]
    assert "Traceback" in blindsight("data", "info", "face", "--debug", code=2).err


@pytest.mark.parametrize(
    ("error", "word", "code"), [(ZeroDivisionError, "unexpected", 1), (KeyboardInterrupt, "interrupted", 130)]
)
def test_what_nobody_expected_is_a_sentence_too(error, word, code, blindsight, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr("blindsight.data.catalogue", fail)
    said = blindsight("data", "list", code=code).err.lstrip("\n")  # Ctrl-C ends the line on which a terminal shows ^C
    assert word in said
    assert said.count("\n") == 1


def test_program_can_be_started_as_users_start_it():
    program = Path(sys.executable).with_name("blindsight")
    done = subprocess.run([program, "data", "info", "face"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'faces'?" in done.stderr


def test_cli_starts_without_heavy_libraries():
    heavy = "{'numpy', 'scipy', 'sklearn', 'faiss', 'matplotlib', 'torch', 'tenseal', 'flwr', 'onnxruntime', 'fastapi'}"
    probe = f"import sys, blindsight.cli\nsys.exit(' '.join(sorted({heavy} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_every_help_has_an_example_that_can_be_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("face.png").touch()

    def check(command, path, context):
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                check(each, [*path, name], click.Context(command, parent=context, info_name=path[-1]))
            return
        words = command.epilog.removeprefix("Example: ").split()
        assert words[: len(path)] == path
        command.make_context(path[-1], words[len(path) :], parent=context)

    check(app, ["blindsight"], None)


@pytest.mark.parametrize(
    ("typed", "found"),
    [("le", ["plain,learn", "plain,ledger"]), ("sift fit --method le", ["plain,leace"])],
)
def test_a_shell_completes_commands(typed, found, capsys, monkeypatch):
    monkeypatch.setenv("_BLINDSIGHT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"blindsight {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.splitlines() == found


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("fish", ".config/fish/completions/blindsight.fish")])
def test_completion_is_installed_once_and_keeps_what_is_there(shell, file, blindsight, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    (tmp_path / ".bashrc").write_text("export A=1")
    for _ in range(2):
        blindsight("--install-completion")
    assert (tmp_path / file).read_text().count("_BLINDSIGHT_COMPLETE") == 1
    assert (tmp_path / ".bashrc").read_text().startswith("export A=1")
    assert "_BLINDSIGHT_COMPLETE" in blindsight("--show-completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "tcsh" in blindsight("--install-completion", code=2).err


def test_list_tells_what_is_here(blindsight):
    here = {entry["name"]: entry["here"] for entry in blindsight("data", "list", "--json").document["collections"]}
    assert (here["faces"], here["cifar10"], here["utkface"]) == (True, False, False)
    said = blindsight("data", "list").out
    assert "bundled" in said
    assert "{" not in said
    assert "blindsight papers fetch cifar10" in blindsight("data", "info", "cifar10", code=1).err


def test_info_describes_faces(blindsight):
    described = blindsight("data", "info", "faces", "-n", 30, "--json").document
    assert described["pictures"] == 30
    assert set(described["attributes"]) >= {"male", "smiling", "eyeglasses"}


def test_info_of_a_folder_reports_broken_pictures(blindsight, tmp_path, monkeypatch):
    for kind, colour in (("cats", "red"), ("dogs", "blue")):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(tmp_path / "pets" / kind / "one.png")
    (tmp_path / "pets" / "dogs" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    monkeypatch.setenv("HOME", str(tmp_path))
    described = blindsight("data", "info", "folder", "--path", "~/pets", "--json").document
    assert (described["pictures"], described["classes"]) == (2, 2)
    assert described["skipped"][0].startswith("dogs/broken.jpg: ")


def test_show_writes_a_contact_sheet(blindsight, tmp_path, monkeypatch):
    asked = ["data", "show", "faces", "-n", 40, "--out", "~/new/sheet.png"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "Did you mean 'smiling'?" in blindsight(*asked, "--attributes", "smilling", code=2).err
    assert not (tmp_path / "new").exists()
    described = blindsight(*asked, "--attributes", "smiling,eyeglasses", "--json").document
    with Image.open(tmp_path / "new" / "sheet.png") as picture:
        assert picture.size == (described["width"], described["height"])


def test_show_is_the_same_for_the_same_seed(blindsight, tmp_path):
    def sheet(seed):
        blindsight("data", "show", "faces", "-n", 8, "--seed", seed, "--out", tmp_path / "sheet.png")
        return (tmp_path / "sheet.png").read_bytes()

    assert sheet(1) == sheet(1) != sheet(2)


def test_features_are_written_and_progress_goes_to_standard_error(blindsight, tmp_path):
    asked = ["data", "features", "faces", "-n", 20, "--out", tmp_path / "f.npz"]
    said = blindsight(*asked, "--json")
    assert said.document["rows"] == 20
    assert said.err
    assert "Did you mean 'pixels'?" in blindsight(*asked, "--features", "pixel", code=2).err


def test_reader_options_can_be_given(blindsight, tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "one.png")
    (tmp_path / "table.csv").write_text("vm\none.png\n")
    asked = ["data", "info", "csv", "--path", tmp_path / "table.csv", "--json"]
    assert "path_column" in blindsight(*asked, code=2).document["error"]
    assert blindsight(*asked, "-o", "path_column=vm").document["pictures"] == 1


@pytest.mark.parametrize("option", ["label", "random_state=3", "size=5", "n=3", "pictures_per_person=x"])
def test_options_that_are_not_a_readers_get_a_sentence(option, blindsight):
    said = blindsight("data", "info", "faces", "-n", 5, "-o", option, code=2).err
    assert "unexpected" not in said
    assert option.split("=")[0] in said


@pytest.mark.parametrize("torn", [b"", b'{"kind":"spend","loss":{"epsi', b"\0" * 30 + b"}\n"])
def test_showing_a_ledger_tells_what_was_spent_and_writes_nothing(blindsight, tmp_path, torn):
    path = tmp_path / "privacy.ledger"
    ledger = Ledger(path)
    ledger.set_budget("album", unit="person", neighbours="replace", epsilon=2.0, delta=0.0)
    ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=0.5), [1.0], **ALBUM)
    (tmp_path / "privacy.ledger.lock").unlink(missing_ok=True)
    path.write_bytes(path.read_bytes() + torn)
    before = files_in(tmp_path)
    shown = blindsight("ledger", "show", path, "--delta", 1e-6, "--json").document
    assert (shown["recovered"] is not None) == bool(torn)
    (scope,) = shown["scopes"]
    assert (scope["scope"], scope["unit"], scope["releases"], scope["budget"]) == ("album", "person", 1, 2.0)
    assert scope["epsilon"] == pytest.approx(0.5)
    assert "album" in blindsight("ledger", "show", path, "--delta", 1e-6).out
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("garbage", [b"\xff\xd8\xff\xe0 a photo\nof several\0lines", b"one line", b""])
def test_showing_what_is_no_ledger_leaves_it_alone(blindsight, tmp_path, garbage):
    (tmp_path / "photo.jpg").write_bytes(garbage)
    assert blindsight("ledger", "show", tmp_path / "photo.jpg", "--delta", 1e-6, code=1).err.startswith("error: ")
    assert "there is no ledger" in blindsight("ledger", "show", tmp_path / "none", "--delta", 1e-6, code=1).err
    assert files_in(tmp_path) == {"photo.jpg": garbage}


def test_infinite_epsilon_is_a_word_in_json(blindsight, tmp_path):
    Ledger(tmp_path / "l").release(GaussianMechanism(sensitivity=1.0, sigma=2.0), [1.0], **ALBUM)
    (scope,) = blindsight("ledger", "show", tmp_path / "l", "--delta", 0, "--json").document["scopes"]
    assert (scope["epsilon"], scope["epsilon_basic"]) == ("infinity", "infinity")


def files_in(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        ["data", "show", "faces"],
        ["data", "features", "faces", "--out", "PLACE/features.npz"],
        ["demo"],
        ["learn", "classifier"],
        ["learn", "cluster"],
        ["papers", "selective", "days"],
        ["search", "build", "digits", "--mode", "open"],
        ["papers", "hashing", "compare"],
        ["papers", "sensorsift", "matrix"],
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_where_nothing_can_be_written_is_found_before_any_work(words, tmp_path, blindsight):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "out")
    words = [word.replace("PLACE", place) for word in words]
    said = blindsight(*words, *(() if "--out" in words else ("--out", place)), code=1).err
    assert "a part of the path is a file" in said
    assert said.count("\n") == 1
