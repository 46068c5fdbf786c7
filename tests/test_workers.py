"""The engine of evaluations: the same bytes from threads, processes and a Dask cluster; workers that die; data that change."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qdq_translator import TranslateOptions
from qdq_translator.cli import main
from qdq_translator.core import workers
from qdq_translator.core.command_options import TuneOptions, VerifyOptions
from qdq_translator.core.errors import UsageError, UserError
from qdq_translator.core.formats.rows import plain
from qdq_translator.core.progress import silent
from qdq_translator.core.workers import cluster
from qdq_translator.core.workers.local import MOST_DEATHS, Processes
from qdq_translator.core.workers.work import InProcess, pack, shards, unpack
from qdq_translator.lab.laboratory import translate
from qdq_translator.lab.simulate.evaluation import Evaluation, evaluation
from qdq_translator.lab.simulate.inputs import InputSpec, Samples, load_samples
from qdq_translator.lab.tune.run import tune
from qdq_translator.lab.verification import verify
from tests.dask_cluster import connected, dask_cluster, free_port
from tests.small_models import model
from tests.works import Floats, Heavy, Refusing, Sum

pytest.importorskip("onnxruntime")
PACKAGE = Path(workers.__file__).parents[2]
MODEL, DATA = PACKAGE / "models" / "digits_resnet_qat.onnx", PACKAGE / "models" / "digits_samples.npz"
SPEC = InputSpec("x", (1, 4), np.dtype(np.float32))


def test_shards_depend_on_the_number_of_runs_alone() -> None:
    for runs in (1, 2, 15, 16, 17, 100, 511, 512, 5000):
        found = shards(runs)
        assert [run for shard in found for run in shard] == list(range(runs))
        assert max(map(len, found)) <= 32 and (len(found) >= 16 or len(found) == runs)


def test_threads_and_processes_add_up_to_the_same_bits() -> None:
    ranges = shards(200)
    expected, _, count = InProcess(1).run(Floats(), ranges)
    assert count == 200 and expected != sum(sorted(Floats().open()(run)[0] for run in range(200)))
    for threads in (3, 16):
        assert InProcess(threads).run(Floats(), ranges)[0] == expected
    for number in (1, 3):
        with contextlib.closing(Processes(number)) as engine:
            total, pids, _ = engine.run(Floats(), ranges)
        assert total == expected and os.getpid() not in pids and len(pids) <= number


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.touch()
    done: list[int] = []
    with contextlib.closing(Processes(1)) as engine:  # of two, one may do all that is left before the other is replaced
        total, pids, count = engine.run(Floats(100, str(deaths), 1), shards(200), done.append)
    assert deaths.read_text() == "dead\n" and count == 200 and done[-1] == 200
    assert total == InProcess(1).run(Floats(), shards(200))[0] and len(pids) == 2


def test_work_that_ends_every_worker_is_given_up(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.touch()
    with contextlib.closing(Processes(2)) as engine, pytest.raises(UserError, match="died 3 times") as error:
        engine.run(Floats(100, str(deaths), 99), shards(200))
    assert len(deaths.read_text().splitlines()) >= MOST_DEATHS and "fewer --workers" in str(error.value)


def test_the_first_error_in_the_order_of_the_data_is_told() -> None:
    with contextlib.closing(Processes(2)) as processes:
        for engine in (InProcess(1), InProcess(4), processes):
            with pytest.raises(UserError, match="Run 40 is bad") as error:
                engine.run(Refusing(), shards(200))
            assert error.value.hint == "Fix it."


def _samples(path: Path, count: int = 40) -> Samples:
    np.savez(path, x=np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))
    return load_samples(path, [SPEC], None)


def test_data_that_change_under_way_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    samples = _samples(path)
    with contextlib.closing(Processes(2)) as engine:
        assert engine.run(Sum(samples), shards(40)) == InProcess(2).run(Sum(samples), shards(40))
        samples.check_unchanged()
        values = dict(np.load(path))
        values["x"][-1, 0] += 1
        np.savez(path, **values)
        with pytest.raises(UserError, match="changed"):
            samples.check_unchanged()
    with contextlib.closing(Processes(2)) as fresh, pytest.raises(UserError, match="different data"):
        fresh.run(Sum(samples), shards(40))


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translated")
    assert main(["translate", str(MODEL), "--preset", "dla", "--platform", "jetpack-6.0", "-o", str(folder)]) == 0
    return folder


def _everything(where: Evaluation, translated: Path, folder: Path) -> dict[str, bytes]:
    """What `verify`, `translate --calibrate` and `tune` make."""
    asked = VerifyOptions(model=str(MODEL), translation=str(translated), data=str(DATA), samples=40)
    verified = verify(dataclasses.replace(asked, audit=True, sensitivity=True, per_layer=True), where=where)
    board: dict[str, Any] = {"target": "orin-dla", "platform": "jetpack-6.2"}
    calibrating = TranslateOptions(**board, calibrate=str(DATA), calibrate_samples=40)
    files = translate(MODEL, calibrating, where=where).save(folder)
    search = TuneOptions(model=str(MODEL), data=str(DATA), max_drop=0.0, samples=40, passes=8, **board)
    found = tune(dataclasses.replace(search, output_dir=str(folder)), where, silent)
    assert found.results.evaluations > 1
    del verified["sensitivity"]["seconds"]
    tuning = dataclasses.replace(found.results, seconds=0.0, command="")
    return {
        "verify": json.dumps(verified).encode(),
        "tune": json.dumps(plain(tuning)).encode() + found.translation.cache.to_text().encode(),
        **{path.name: path.read_bytes() for path in files if path.exists()},
    }


def test_5_workers_and_a_cluster_give_the_same_bytes_as_one(translated: Path, tmp_path: Path) -> None:
    alone = _everything(Evaluation(InProcess(1)), translated, tmp_path / "1")
    assert len(alone) > 6
    with evaluation(5) as where:
        assert _everything(where, translated, tmp_path / "5") == alone
    pytest.importorskip("distributed")
    with dask_cluster(2, {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}) as (address, _):
        stack, where = connected(address)
        with stack:
            assert _everything(where, translated, tmp_path / "cluster") == alone


def test_wrong_usage() -> None:
    with pytest.raises(UsageError, match="not a number of processes"), evaluation(0):
        pass
    with pytest.raises(UsageError, match="exclude each other"), evaluation(2, "tcp://localhost:1"):
        pass
    with pytest.raises(UserError, match="no provider 'gpux'"), evaluation(1, None, "gpux"):
        pass


# -------------------------------------------------------------------- packing


def _weighted(*weights: np.ndarray) -> onnx.ModelProto:
    text = "net (float[1,4] x) => (float[1,4] y) { y = Identity(x) }"
    return model(text, **{f"w{number}": values for number, values in enumerate(weights)})


def test_what_is_packed_comes_back_and_large_parts_lie_apart() -> None:
    large, small = np.arange(8192, dtype=np.float32), np.arange(4, dtype=np.float32)
    value = {"model": _weighted(large, small), "array": large[::-1].copy(), "words": "as they are"}
    packed = pack(value)
    assert len(packed.parts) == 2 and len(packed.body) < 4096
    found = unpack(packed.body, [bytes(packed.parts[name]) for name in packed.order])
    assert found["model"] == value["model"] and np.array_equal(found["array"], value["array"])
    assert found["words"] == value["words"]


def test_equal_models_have_one_digest_and_other_weights_another() -> None:
    large = np.arange(8192, dtype=np.float32)
    given = pack(_weighted(large, large + 1))
    assert given.digest == pack(_weighted(large.copy(), large + 1)).digest
    assert len({given.digest, pack(_weighted(large, large)).digest, pack(_weighted(large + 1, large)).digest}) == 3
    other = pack(_weighted(large, large + 2))
    assert len(set(given.parts) & set(other.parts)) == 1


# -------------------------------------------------------------------- a Dask cluster


def test_only_what_changed_is_sent_to_a_cluster() -> None:
    pytest.importorskip("distributed")
    random = np.random.default_rng(0)
    first, second, third = (random.normal(size=50_000).astype(np.float32) for _ in range(3))
    works = [Heavy(first, second), Heavy(first, third), Heavy(third, first), Heavy(second, third)]
    with dask_cluster(2, {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}) as (address, running):
        stack, where = connected(address)
        with stack:
            client, sent = where.engine._client, []
            scatter = client.scatter
            client.scatter = lambda data, **given: (sent.append(sum(map(len, data))), scatter(data, **given))[1]
            for work in works:
                assert where.engine.run(work, shards(40)) == InProcess(1).run(work, shards(40))
            kilobytes = [size // 1000 for size in sent]
            assert kilobytes == [400, 200, 0, 200]  # the parts of the last two stay there
            for process in running[:1]:
                process.kill()
            assert where.engine.run(works[0], shards(40)) == InProcess(1).run(works[0], shards(40))


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        *(("tcp://8.8.8.8:8786", True), ("8.8.8.8:8786", True), ("ws://[2001:4860:4860::8888]:8786", True), ("ucx://8.8.8.8:1", True)),
        *(("tls://8.8.8.8:8786", False), ("wss://8.8.8.8:8786", False), ("tcp://127.0.0.1:8786", False), ("tcp://[::1]:8786", False)),
        *(("tcp://192.168.1.2:8786", False), ("localhost:8786", False), ("tcp://", False), ("tcp://[x", False), ("", False)),
    ],
)  # fmt: skip
def test_a_scheduler_without_tls_on_a_public_address_is_refused(
    address: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = []
    monkeypatch.setattr(cluster, "dask_setting", lambda key: setting[0] if setting else None)
    with pytest.raises(UserError, match="public address") if refused else contextlib.nullcontext():
        cluster.refuse_plain_text(address)
    setting.append(False)
    cluster.refuse_plain_text(address)


def test_a_scheduler_that_is_not_there_is_told_soon() -> None:
    pytest.importorskip("distributed")
    begun = time.monotonic()
    with pytest.raises(UserError, match="cannot be reached"), evaluation(scheduler=f"tcp://127.0.0.1:{free_port()}"):
        pass
    with pytest.raises(UserError, match="cannot be reached"), evaluation(scheduler="no address"):
        pass
    assert time.monotonic() - begun < 20


def test_a_cluster_gives_the_same_and_survives_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    samples = _samples(tmp_path / "x.npz", 200)
    expected = InProcess(1).run(Sum(samples), shards(200))
    path = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    with dask_cluster(2, path) as (address, running):
        stack, where = connected(address)
        with stack:
            assert where.engine.run(Sum(samples), shards(200)) == expected
            killed: list[int] = []

            def kill(done: int) -> None:
                if done > 50 and not killed:
                    running[0].kill()
                    killed.append(done)

            assert where.engine.run(Sum(samples), shards(200), kill) == expected and killed
            with pytest.raises(UserError, match="Run 40 is bad"):
                where.engine.run(Refusing(), shards(200))


def test_workers_of_another_version_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    other = tmp_path / "other" / "qdq_translator"
    shutil.copytree(PACKAGE, other, ignore=shutil.ignore_patterns("__pycache__"))
    (other / "_version.py").write_text('__version__ = "0.0.7"\n')
    with dask_cluster(1, {"PYTHONPATH": str(other.parent)}) as (address, _), pytest.raises(UserError) as error:
        connected(address)
    assert "qdq-translator 0.0.7" in str(error.value) and "same versions" in str(error.value)
