"""Cells share commands and folders; verdicts follow a paired t-test."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from cenote.cli import main
from cenote.data.files import try_lock
from cenote.device import VARIABLE
from cenote.reproduce import (
    Claim,
    Item,
    Job,
    TableResult,
    find_item,
    judge,
    list_jobs,
    make_cells,
    measure,
    read_result,
    run_cells,
)
from cenote.reproduce.cost import Cost, count_training_images, describe, estimate
from cenote.reproduce.result import Scores
from cenote.reproduce.run import run_in_process
from cenote.train.recipes import load_recipe

ITEM = Item(
    paper="toy",
    name="table-1",
    shows="a toy",
    inputs={"data": "images", "other": "other images"},
    commands={"run": "fit {data} {scale} {row} --seed {seed}", "judged": "evaluate {run} {data}"},
    scales={"tiny": "--epochs 1 --lr 1", "small": "--epochs 2", "paper": ""},
    metric="accuracy",
    score="judged/classify/accuracy",
    rows={"GAP": "--pool gap --lr 2", "SimPool": "--pool simpool"},
    columns={
        "test": {},
        "val": {"score": "run/val/accuracy"},
        "standing": {"data": "other", "score": "run/standings/{title}/mean"},
    },
    values={"GAP": [55.0, None, None], "SimPool": [57.0, None, None]},
    claims=[{"says": "SimPool is better", "higher": "SimPool | test", "lower": "GAP | test"}],
)  # type: ignore[arg-type]


def pretend(job: Job) -> int:
    """Write the results of a command instead of running it."""
    if "--pool" in job.words:
        score = 10.0 * ("simpool" in job.words) + int(job.words[-1])
        content = {"val": {"accuracy": score}, "standings": []}
        content["standings"] = [{"name": name, "mean": score} for name in ITEM.rows]
    else:
        assert (Path(job.words[1]) / "results.json").exists()
        content = {"classify": {"accuracy": float("simpool" in Path(job.words[1]).name)}}
        run = json.loads((Path(job.words[1]) / "results.json").read_text())
        content["classify"]["accuracy"] = run["val"]["accuracy"]
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "results.json").write_text(json.dumps(content))
    return 0


def test_a_cell_has_the_last_of_each_option_and_the_folders_of_earlier_commands(tmp_path) -> None:
    cells = make_cells(ITEM, "tiny", {"data": "D ata"}, 1, tmp_path)
    run, judged = cells[0].jobs.values()
    assert run.words == tuple(
        ["fit", "D ata", "--epochs", "1", "--lr", "2", "--pool", "gap", "--seed", "0"]
    )
    assert judged.words == ("evaluate", str(run.folder), "D ata")
    assert [cell.column for cell in cells] == ["test", "val"] * 2  # `other` was not given
    elsewhere = make_cells(ITEM, "tiny", {"data": "D ata"}, 1, tmp_path / "moved")
    assert elsewhere[0].jobs["judged"].folder.name == judged.folder.name


def test_a_cell_has_only_the_commands_that_its_number_needs(tmp_path) -> None:
    item = find_item("sar/table-8")
    given = make_cells(item, "small", {"data": "d"}, 1, tmp_path)
    assert {cell.column for cell in given if cell.column.startswith("DINO")} == {
        "DINO, accuracy",
        "DINO, k-NN",
    }  # those of maps need `objects`
    by_column = {cell.column: list(cell.jobs) for cell in given}
    assert by_column["DINO, accuracy"] == ["run", "linear"]
    assert by_column["DINO, k-NN"] == ["run", "probes"]


def test_an_early_epoch_is_of_the_same_training(tmp_path) -> None:
    item = find_item("simpool/table-5")
    inputs = {"training": "t", "cub": "c"}
    cells = {(c.row, c.column): c for c in make_cells(item, "small", inputs, 1, tmp_path)}
    last, early = cells["CLS", "CUB"], cells["CLS@20", "CUB"]
    assert last.jobs["run"] == early.jobs["run"]
    folder = last.jobs["run"].folder
    assert early.jobs["boxes"].words[1] == f"{folder}/epoch-6"
    assert "--keep-epochs 6" in " ".join(last.jobs["run"].words)

    def fail(job: Job) -> int:
        job.log.write_text(job.folder.name)
        return 1

    ended = list(run_cells([early], fail))
    assert [job.words[0] for job in ended] == ["fit"]  # its evaluation was not tried


def test_equal_commands_run_once_and_finished_ones_never_again(tmp_path) -> None:
    inputs = {"data": "d", "other": "d"}
    cells = make_cells(ITEM, "tiny", inputs, 3, tmp_path)
    assert len(list(run_cells(cells, pretend))) == 12  # two commands, two rows, three seeds
    assert not list(run_cells(cells, pretend))
    result = TableResult(ITEM, "tiny", inputs, measure(cells))
    text = result.text()
    assert "11.0 ± 1.0" in text
    assert "SimPool is better: holds (+10.0 ± 0.0, 3 seeds; paper +2.0)" in text
    result.write(tmp_path)
    content = json.loads((tmp_path / "toy-table-1.json").read_text())
    assert content["cells"][0]["scores"] == {"0": 0.0, "1": 1.0, "2": 2.0}
    assert content["cells"][2]["scores"] == {"0": 0.0, "1": 1.0, "2": 2.0}  # from a list
    assert content["claims"][0]["verdict"] == "holds"


def test_a_written_table_is_read_again(tmp_path) -> None:
    item = find_item("gsp/figure-6")
    scores: Scores = {("μ = 0.3", "contrastive"): {0: 5.0, 2: 6.0}}
    TableResult(item, "small", {"data": "d"}, scores).write(tmp_path)
    again = read_result(tmp_path / "gsp-figure-6.json")
    assert (again.item, again.scale, again.inputs) == (item, "small", {"data": "d"})
    assert again.scores["μ = 0.3", "contrastive"] == {0: 5.0, 2: 6.0}
    assert "| μ = 0.3 | 5.5 ± 0.7 |" in again.markdown() and "| μ = 1 | - |" in again.markdown()
    assert (tmp_path / "gsp-figure-6.md").read_text().endswith(again.markdown())


def test_what_fails_or_runs_elsewhere_is_skipped_with_what_needs_it(tmp_path, caplog) -> None:
    cells = make_cells(ITEM, "tiny", {"data": "d"}, 1, tmp_path)
    lock = try_lock(cells[0].jobs["run"].folder.with_suffix(".lock"))
    assert lock is not None

    def fail(job: Job) -> int:
        job.log.write_text("a\nOut of memory\n\n")
        return 1

    list(run_cells(cells, fail))
    assert "exit code 1: Out of memory" in caplog.text
    assert not [job for cell in cells for job in cell.jobs.values() if job.done]
    lock.release()
    assert len(list(run_cells(cells, pretend))) == 4


def test_two_equal_failures_before_any_number_end_the_table(tmp_path) -> None:
    cells = make_cells(ITEM, "tiny", {"data": "d"}, 3, tmp_path)
    tried: list[Job] = []

    def fail(job: Job) -> int:
        tried.append(job)
        job.log.write_text("d has no boxes\n")
        return 1

    with pytest.raises(ValueError, match="failed alike: d has no boxes"):
        list(run_cells(cells, fail))
    assert len(tried) == 2
    pretend(cells[0].jobs["run"])  # now something is done: the others may still succeed
    list(run_cells(cells, fail))
    assert len(tried) > 4


def test_a_checkpoint_is_deleted_only_when_the_command_is_done(tmp_path) -> None:
    cells = make_cells(ITEM, "tiny", {"data": "d"}, 1, tmp_path)
    checkpoint = cells[0].jobs["run"].folder / "checkpoint.pt"

    def fail(job: Job) -> int:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "checkpoint.pt").touch()
        job.log.write_text(job.folder.name)
        return 1

    list(run_cells(cells, fail))
    assert checkpoint.exists()
    list(run_cells(cells, pretend))
    assert not checkpoint.exists()


def test_ctrl_c_waits_for_the_command(tmp_path, monkeypatch) -> None:
    waits = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            waits.append(timeout)
            if len(waits) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr("subprocess.Popen", Interrupted)
    monkeypatch.setattr("sys.executable", "true")
    with pytest.raises(KeyboardInterrupt):
        run_in_process(Job(("fit",), tmp_path / "run"))
    assert waits[1] is None  # until it has ended


def test_ctrl_c_says_how_to_resume(tmp_path, capsys, monkeypatch) -> None:
    def interrupt(cells: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cenote.reproduce.run_cells", interrupt)
    words = ["reproduce", "simpool/table-9", "--data", "world/tiny", "--scale", "tiny"]
    assert main([*words, "-o", str(tmp_path)]) == 130
    assert "interrupted; resume with: cenote reproduce" in capsys.readouterr().err


def test_half_of_the_results_is_not_the_end(tmp_path, caplog) -> None:
    """Two columns read one command; one of its protocols is missing."""
    cells = make_cells(ITEM, "tiny", {"data": "d", "other": "d"}, 1, tmp_path)
    tried: list[Job] = []

    def half(job: Job) -> int:
        tried.append(job)
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "results.json").write_text('{"val": {"accuracy": 1.0}, "standings": null}')
        return 0

    list(run_cells(cells, half))
    assert len(tried) == 4  # each once
    assert "no standings/GAP/mean in results.json" in caplog.text
    assert cells[1].number() == 1.0 and cells[2].number() is None
    list(run_cells(cells, pretend))
    assert all(job.done for job in list_jobs(cells))


def test_data_without_the_score_end_the_table(tmp_path) -> None:
    """A command that succeeds without the number of its cells has failed as well."""
    cells = make_cells(ITEM, "tiny", {"data": "d"}, 3, tmp_path)
    tried: list[Job] = []

    def run_without_score(job: Job) -> int:
        tried.append(job)
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "results.json").write_text("{}")
        return 0

    with pytest.raises(ValueError, match="failed alike: no val/accuracy in "):
        list(run_cells(cells, run_without_score))
    assert len(tried) == 3  # a training, its evaluation, another training


@pytest.mark.parametrize("shift", [-3.0, -0.2, 0.2, 3.0])
def test_a_verdict_is_a_paired_t_test(shift: float) -> None:
    rng = np.random.default_rng(0)
    scores: Scores = {
        ("GAP", "test"): dict(enumerate(rng.normal(50, 1, 4).tolist())),
        ("SimPool", "test"): dict(enumerate(rng.normal(50 + shift, 1, 4).tolist())),
    }
    verdict = judge(ITEM, ITEM.claims[0], scores)
    pairs = [[scores[row, "test"][seed] for seed in range(4)] for row in ("SimPool", "GAP")]
    test = ttest_1samp(np.subtract(*pairs), 0)
    expected = "ties"
    if test.pvalue < 0.05:
        expected = "holds" if test.statistic > 0 else "does not hold"
    assert verdict.verdict == expected
    assert verdict.difference == pytest.approx(np.mean(np.subtract(*pairs)))


def test_a_claim_needs_three_seeds() -> None:
    scores: Scores = {("GAP", "test"): {0: 1.0, 1: 2.0}, ("SimPool", "test"): {0: 2.0}}
    assert judge(ITEM, ITEM.claims[0], scores).text == (
        "SimPool is better: not established (+1.0, 1 seed of the 3 that a claim needs; paper +2.0)"
    )
    scores["SimPool", "test"] |= {1: 9.0}
    assert judge(ITEM, ITEM.claims[0], scores).verdict == "not established"
    everything = Claim(says="all", higher="*", lower="GAP")
    assert judge(ITEM, everything, scores).verdict == "not measured"


def test_copies_of_one_number_are_not_a_measurement() -> None:
    scores: Scores = {
        ("GAP", "test"): dict.fromkeys(range(3), 1.0),
        ("SimPool", "test"): dict.fromkeys(range(3), 2.0),
    }
    verdict = judge(ITEM, ITEM.claims[0], scores)
    assert verdict.text == (
        "SimPool is better: not established (+1.0, the same for all 3 seeds; paper +2.0)"
    )
    scores["SimPool", "test"][1] = 2.5
    assert judge(ITEM, ITEM.claims[0], scores).verdict == "holds"


def test_the_seed_is_in_the_command_only_where_it_changes_something(tmp_path) -> None:
    item = find_item("dissertation/table-4.1")
    inputs = {"data": "d", "words": "w"}
    assert len(list_jobs(make_cells(item, "small", inputs, 3, tmp_path))) == 1
    assert len(list_jobs(make_cells(item, "tiny", inputs, 3, tmp_path))) == 3  # of a sample


def test_the_list_and_a_description(capsys) -> None:
    assert main(["reproduce"]) == 0
    rows = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines() if line)
    assert rows["simpool/table-10"] == rows["dissertation/table-3.12"] == "31"
    assert main(["reproduce", "simpool/table-10"]) == 0
    out = capsys.readouterr().out
    assert (
        "57.1" in out and "cenote fit DATA --freeze" in out and "claim: SimPool is above GAP" in out
    )


def test_the_cost_at_the_scale_of_the_paper(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("cenote.reproduce.cost.measure_speed", lambda: 1e12)
    assert main(["reproduce", "simpool/table-10", "--scale", "paper"]) == 0
    # 31 rows x 100 epochs x 260,000 images x 3 views, at 3 x 1.81e9 multiply-adds
    expected = "images: 31 trainings of 806 million images in all: about 3,647 hours at "
    assert expected in capsys.readouterr().out
    # Of the given images, of which there are fewer, it is lower; nothing starts.
    arguments = ["--data", "world/tiny", "--scale", "paper", "--seeds", "1", "-o", str(tmp_path)]
    assert main(["reproduce", "simpool/table-10", *arguments]) == 0
    out = capsys.readouterr().out
    images = 31 * 100 * count_training_images("world/tiny")
    assert f"31 trainings of {images:,} images in all: about " in out
    assert "--yes" in out and not list(tmp_path.iterdir())


def test_the_cost_of_a_small_scale_has_the_given_images(tmp_path) -> None:
    item, inputs = find_item("beyond-gap/table-1"), {"data": "d"}
    jobs = list_jobs(make_cells(item, "small", inputs, 3, tmp_path))
    assert estimate(jobs, {"d": 100}) == Cost(90, 90 * 10 * 100, None, 90)
    assert describe(estimate(jobs, {"d": 100})) == (
        "90 trainings of 90,000 images in all; other commands: 90, not estimated."
    )


def test_the_cost_of_dino_has_small_views_and_the_teacher() -> None:
    recipe = load_recipe("simpool/vit-small-dino")
    student = 3 * (2 * 4.57 + 6 * 0.79)
    assert recipe.multiply_adds == pytest.approx((student + 2 * 4.57) * 1e9)
    job = Job(("dino", "imagenet:D", "--recipe", recipe.name, "--epochs", "2"), Path("run"))
    assert estimate([job], {}).multiply_adds == pytest.approx(2 * 1281167 * recipe.multiply_adds)


def test_the_cost_is_that_of_the_selected_cells(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("cenote.reproduce.cost.measure_speed", lambda: 1e12)
    arguments = ["--data", "world/tiny", "--scale", "paper", "--seeds", "2"]
    arguments += ["--only", "CLS | ViT-*", "-o", str(tmp_path)]
    assert main(["reproduce", "simpool/table-2", *arguments]) == 0
    assert capsys.readouterr().out.startswith("4 trainings of ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["d", "--only", "XX*"], "--only 'XX*' matches no cell: one is 'GAP | ResNet-50'"),
        (["d", "--only", "CLS | ResNet*"], "--only 'CLS | ResNet*' matches no cell"),
        (["dta=d"], "no input 'dta'; did you mean 'data'?"),
        (["d", "--device", "gpu"], "device 'gpu:0' does not exist"),
        (["no/such/folder"], "no/such/folder does not exist"),
        (["d", "imagenet-q=d"], "no input 'imagenet-q'"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(
    arguments, message, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv(VARIABLE, "auto")  # restored after the test, whatever --device sets
    assert main(["reproduce", "simpool/table-2", "-o", str(tmp_path), "--data", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_missing_input_is_named(tmp_path, capsys) -> None:
    assert main(["reproduce", "gsp/table-4", "-o", str(tmp_path)]) == 2
    assert "needs --data: data (collages" in capsys.readouterr().err
    words = ["--data", "training=world/tiny", "-o", str(tmp_path)]
    assert main(["reproduce", "simpool/table-5", *words]) == 2
    assert "needs --data: cub (images with boxes" in capsys.readouterr().err
    words = ["--data", "world/tiny", "--seeds", "0", "-o", str(tmp_path)]
    assert main(["reproduce", "simpool/table-10", *words]) == 2
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err


def test_cells_without_their_input_are_counted(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("cenote.reproduce.cost.measure_speed", lambda: 1e12)
    words = ["--data", "cub=world/tiny", "--scale", "paper", "-o", str(tmp_path)]
    assert main(["reproduce", "gsp/table-4", *words]) == 0
    expected = "32 of 64 cells can be made; the others need --data for data, weights.\n"
    assert capsys.readouterr().out.startswith(expected)


def test_data_without_a_folder_is_refused(capsys) -> None:
    assert main(["reproduce", "simpool/table-10", "--data", "world/tiny"]) == 2
    assert "give its folder, -o FOLDER" in capsys.readouterr().err


def test_a_folder_has_a_table_of_one_data_set_and_scale(tmp_path, capsys) -> None:
    item = find_item("simpool/table-2")
    TableResult(item, "tiny", {"data": "world/tiny"}).write(tmp_path)
    for arguments in (["world/tiny"], ["world/small", "--scale", "tiny"]):
        assert (
            main(["reproduce", "simpool/table-2", "-o", str(tmp_path), "--data", *arguments]) == 2
        )
        assert "of world/tiny at scale tiny: choose another -o" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "cells"),
    [("beyond-gap/table-1", "*P4, GAP | C*"), ("gsp/table-4", "GAP | coll*contr*")],
)
def test_a_cell_really_runs(name: str, cells: str, tmp_path, capsys) -> None:
    arguments = ["--data", "world/tiny", "--scale", "tiny", "--seeds", "1", "--only", cells]
    assert main(["reproduce", name, *arguments, "-o", str(tmp_path)]) == 0
    content = json.loads((tmp_path / f"{name.replace('/', '-')}.json").read_text())
    assert any(cell["scores"] for cell in content["cells"])
