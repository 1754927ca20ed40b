"""The engine of runs in pods: which outcome a run has, and which objects remain."""

from __future__ import annotations

import asyncio
import errno
import time
from dataclasses import replace

import pytest

from runner.agent.frames import HEADER, LARGEST, Kind
from runner.core.engine.job import Event, Outcome
from runner.core.engine.output import Kept
from runner.core.kube.discovery import ApiResource
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.jobs import JOBS, RUN, RUN_OF, SECRETS, RecordedRun, run_name
from runner.engines.pod.spool import Spool
from runner.engines.pod.states import Patience, PodState
from runner.engines.pod.stream import MARK, mark_of
from runner.values.errors import ApiUnavailableError, ForbiddenError, PodWaitsError
from runner.values.objects import Object, ObjectKey
from tests.engines.pod.integration.bed import Bed, begin, conclude, detach, events, succeed
from tests.kit.wait import until


async def _detach(bed: Bed, deadline: float) -> tuple[dict[str, str], PodEngine, RecordedRun]:
    """Begin a run, and start another operator while its agent is connected. Return what that operator finds."""
    first = await bed.engine()
    running = asyncio.create_task(first.run(bed.job(deadline), events))
    record = await bed.record()
    agent = await bed.agent(record)
    await detach(first, running)
    agent.client.close()
    second = await bed.engine()
    found = await bed.resumed(second)
    await until(lambda: second.records.had_pod(found, bed.owner.uid), "the record of the pod")
    return record, second, found


def _earlier(run: RecordedRun) -> RecordedRun:
    """Let a run have begun an hour earlier."""
    return replace(run, record=replace(run.record, began=run.record.began - 3600))


async def test_the_deadline_of_a_resumed_run_is_that_of_the_run(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time()
    record, second, found = await _detach(bed, deadline=3600)
    assert before <= found.record.began <= time.time()
    monkeypatch.setattr("runner.engines.pod.execution._RECONNECT_WITHIN", 2.0)  # the agent must connect within it
    job = bed.job(3600, _earlier(found))
    running = asyncio.create_task(second.run(job, events))
    agent = await bed.agent(record)
    await agent.stopped()
    agent.end(-15)
    result = await conclude(second, job, running, agent)
    assert (result.outcome, result.message) == (
        Outcome.TIMED_OUT,
        "the run took longer than 1h and was ended before its first task",
    )


async def test_a_run_that_ended_in_time_while_no_operator_was_there_succeeds(bed: Bed) -> None:
    record, second, found = await _detach(bed, deadline=60)
    job = bed.job(60, _earlier(found))
    running = asyncio.create_task(second.run(job, events))
    agent = await bed.agent(record)
    await succeed(second, job, running, agent)


async def test_a_pod_that_kubernetes_ended_at_its_deadline_without_an_operator_timed_out(bed: Bed) -> None:
    record, second, found = await _detach(bed, deadline=60)
    job = bed.job(60, _earlier(found))
    del bed.pods.states[record["run"]]
    result = await conclude(second, job)
    assert result.outcome is Outcome.TIMED_OUT


async def test_a_pod_that_was_deleted_before_the_deadline_is_lost(bed: Bed) -> None:
    record, second, found = await _detach(bed, deadline=3600)
    job = bed.job(3600, found)
    del bed.pods.states[record["run"]]
    result = await conclude(second, job)
    assert (result.outcome, result.message) == (
        Outcome.CANCELED,
        "The pod of the run was lost: it was deleted.",
    )


@pytest.mark.parametrize(
    ("state", "message", "remains"),
    [
        (
            PodState("pod", "n1", ended="its container ended with exit code 1"),
            "the pod pod of the run ended: its",
            True,
        ),
        (PodState("pod", "n1"), "the agent in the pod pod did not connect", True),
        (PodState("pod", "n1", broken="its image ee:1 cannot be pulled"), "the pod pod cannot start: its image", False),
        (PodState("pod", waits="it cannot be scheduled: 0/3 nodes"), "the pod pod did not start: it cannot be", False),
        (PodState("pod", "n1", lost="its node n1 was lost"), "The pod of the run was lost: its node n1", False),
    ],
)
async def test_a_pod_with_a_log_that_explains_its_failure_remains(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, state: PodState, message: str, *, remains: bool
) -> None:
    short = Patience(start=0.2, broken=0.2, connect=0.2, lost=0.2, ended=0.2)
    engine, job = await bed.engine(), bed.job()
    engine._shared.patience = short
    bed.pods.states[f"run-{bed.owner.uid}-1"] = state
    result = await conclude(engine, job)
    assert result.message.startswith(message)
    assert await bed.objects("secrets") == []
    jobs = await bed.left("jobs")
    assert len(jobs) == remains


async def test_a_resumed_pod_that_does_not_reconnect_is_deleted_because_ansible_can_run_in_it(bed: Bed) -> None:
    _, second, found = await _detach(bed, deadline=3600)
    second._shared.patience = Patience(silent=0.2)
    job = bed.job(3600, found)
    result = await conclude(second, job)
    assert result.message.startswith("the connection to the pod")
    assert await bed.left("jobs") == []


async def test_few_ended_jobs_of_a_resource_remain(bed: Bed) -> None:
    engine = await bed.engine()
    for _ in range(5):
        await succeed(*await begin(bed, engine))
    left = await bed.left("jobs")
    assert [each["metadata"]["name"].rpartition("-")[2] for each in left] == ["3", "4", "5"]
    assert left[0]["spec"]["ttlSecondsAfterFinished"] == 3600


async def test_the_folder_of_a_run_names_its_job_and_its_end(bed: Bed) -> None:
    engine, job, running, agent = await begin(bed)
    kept = Kept(job.run_dir, job.gvk, job.key)
    await until(lambda: kept.job_of_pod(job.ident), "the files of the run, which an agent does not wait for")
    assert kept.job_of_pod(job.ident) == f"{bed.namespace}/run-{bed.owner.uid}-1"
    assert kept.is_live(job.ident)
    agent.pods.states[agent.run] = PodState("pod", "n1", lost="its node n1 was lost")
    agent.client.close()
    result = await conclude(engine, job, running)
    assert (result.outcome, kept.status(job.ident)) == (Outcome.CANCELED, "canceled")
    assert not kept.is_live(job.ident)


async def test_a_run_does_not_have_the_name_of_a_pod_whose_job_is_gone(bed: Bed) -> None:
    labels = {RUN_OF: bed.owner.uid, RUN: run_name(bed.owner.uid, 7)}
    spec = {"containers": [{"name": "ansible", "image": "example.com/ee:1"}]}
    pod = {"metadata": {"name": "left", "labels": labels}, "spec": spec}

    async def is_created() -> bool:
        try:
            await bed.client.request("POST", f"/api/v1/namespaces/{bed.namespace}/pods", body=pod)
        except ForbiddenError:
            return False
        return True

    await until(is_created, "the service account of the namespace")
    engine = await bed.engine()
    running = asyncio.create_task(engine.run(job := bed.job(), events))
    agent = await bed.agent(await bed.record(8))
    await succeed(engine, job, running, agent)


async def test_an_ansible_runner_that_is_too_old_is_the_failure_with_its_remedy(bed: Bed) -> None:
    engine, job, running, agent = await begin(bed)
    error = "ansible-runner is 2.3.6; the image needs ansible-runner 2.4 or later"
    agent.end(None, error=error)
    result = await conclude(engine, job, running, agent)
    assert (result.outcome, result.message) == (Outcome.NOT_STARTED, f"{error} before its first task")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (HEADER.pack(Kind.DATA, 3, 0), "frame 3 instead of 1"),
        (HEADER.pack(Kind.DATA, 1, LARGEST + 1), "a frame of the kind DATA with 67108865 bytes"),
        (HEADER.pack(Kind.DATA, 1, 9) + b"Traceback", "a line is not JSON"),
        (HEADER.pack(99, 0, 0), "a frame of the unknown kind 99"),
    ],
)
async def test_malformed_frames_are_the_failure_of_their_run_whose_objects_are_deleted(
    bed: Bed, sent: bytes, reason: str
) -> None:
    engine, job, running, agent = await begin(bed)
    agent.client.writer.write(sent)
    result = await conclude(engine, job, running)
    assert result.outcome is Outcome.NOT_STARTED
    assert result.message.startswith(f"the agent in the pod of the run sent invalid data ({reason}")
    assert (await bed.left("jobs"), await bed.left("secrets")) == ([], [])


async def test_a_value_that_becomes_known_later_is_masked_in_the_files_of_the_run(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    shown: list[str] = []
    running = asyncio.create_task(engine.run(job, lambda event: shown.append(event["stdout"])))
    record = await bed.record()
    agent = await bed.agent(record)
    event = {"event": "verbose", "uuid": "0-1", "counter": 1, "stdout": "it is generated-value", "event_data": {}}
    agent.line(**event, project_update_id=mark_of(record["token"]))
    await until(lambda: shown)
    of_events = f"PROJECT_UPDATE_ID={mark_of(record['token'])}"
    agent.line(**{**event, "counter": 2, "stdout": of_events}, project_update_id=mark_of(record["token"]))
    await until(lambda: len(shown) == 2)
    assert shown[1] == "PROJECT_UPDATE_ID=********"
    job.secrets.learn(["generated-value"])
    await succeed(engine, job, running, agent)
    folder = job.run_dir / "artifacts" / job.ident
    assert (folder / "stdout").read_text() == f"it is ********\n{shown[1]}\n"
    assert "it is ********" in (folder / "job_events/1-0-1.json").read_text()
    assert (folder / "pod").read_text() == f"{bed.namespace}/{record['run']}"


@pytest.mark.parametrize("state", [None, PodState("pod", "n1", lost="it is being deleted")])
async def test_a_run_whose_agent_ends_before_its_pod_is_known_to_be_lost_did_not_fail(
    bed: Bed, state: PodState | None
) -> None:
    engine, job, running, agent = await begin(bed)
    await until(lambda: engine._unsettled[job.uid].state)
    agent.line(status="canceled")
    agent.end(254)
    await until(lambda: engine._unsettled[job.uid].report)
    await asyncio.sleep(0)
    if state is None:
        del bed.pods.states[agent.run]
    else:
        bed.pods.states[agent.run] = state
    result = await conclude(engine, job, running)
    assert (result.outcome, result.failures) == (Outcome.CANCELED, ())
    assert "The pod of the run was lost: it " in result.message
    agent.client.close()


async def test_a_line_that_an_operator_did_not_survive_fails_its_run_and_ends_no_further_operator(bed: Bed) -> None:
    first, applied = await bed.engine(), list[Event]()
    running = asyncio.create_task(first.run(bed.job(), applied.append))
    record = await bed.record()
    agent = await bed.agent(record)
    mark = mark_of(record["token"])
    for number, size in ((1, 10), (2, 100_000)):
        text = "x" * size
        agent.line(event="verbose", uuid=f"0-{number}", counter=number, stdout=text, event_data={}, **{MARK: mark})
    await until(lambda: len(applied) == 2)
    await detach(first, running)
    agent.client.close()
    # A killed operator would have left this mark.
    folder = bed.folder / "runs-1" / "one"
    (received,) = folder.glob(".received-*")
    received.with_name(f"{received.name}.applying").write_text("2")
    second = await bed.engine()
    found = await bed.resumed(second)
    job = bed.job(resumed=found, run_dir=folder)
    result = await conclude(second, job)
    assert result.message.startswith("the operator ended while it read an event of 100")
    await second.recorded(job)
    assert [*folder.glob(".received-*")] == []


async def test_the_result_of_a_continued_run_contains_no_text_of_its_output(bed: Bed) -> None:
    first, applied = await bed.engine(), list[Event]()
    running = asyncio.create_task(first.run(bed.job(), applied.append))
    record = await bed.record()
    agent = await bed.agent(record)
    mark = mark_of(record["token"])
    data = {"task": "Log in", "task_path": "/r/main.yml:3", "res": {"msg": "login with hunter2hunter2"}}
    agent.line(
        event="runner_on_failed", uuid="0-1", counter=1, stdout="hunter2hunter2", event_data=data, **{MARK: mark}
    )
    agent.line(event="verbose", uuid="0-2", counter=2, stdout="ERROR! hunter2hunter2", **{MARK: mark})
    # A line is stored before it is applied.
    await until(lambda: len(applied) == 2)
    await detach(first, running)
    agent.client.close()
    # The next operator has the same run folder, so it knows the lines, and not the secret values.
    second = await bed.engine()
    found = await bed.resumed(second)
    job = bed.job(resumed=found, run_dir=bed.folder / "runs-1" / "one")
    running = asyncio.create_task(second.run(job, events))
    again = await bed.agent(record, last=2)
    again.number = 2
    again.end(2, stderr="hunter2hunter2")
    result = await conclude(second, job, running, again)
    assert result.outcome is Outcome.DIED
    assert "hunter2" not in repr(result)


@pytest.mark.parametrize("kind", [JOBS, SECRETS], ids=["job", "secret"])
async def test_a_run_whose_objects_cannot_be_deleted_after_its_report_is_not_reported_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, kind: ApiResource
) -> None:
    monkeypatch.setattr("runner.engines.pod.engine._FIRST_RETRY", 0.05)
    delete, failures, is_down = bed.client.delete, 0, True

    async def fail_at_first(resource: ApiResource, key: ObjectKey) -> Object:
        nonlocal failures
        if resource == kind and is_down:
            failures += 1
            raise ApiUnavailableError("connection reset")
        return await delete(resource, key)

    monkeypatch.setattr(bed.client, "delete", fail_at_first)
    engine, job, running, agent = await begin(bed)
    agent.pods.states[agent.run] = PodState("pod", "n1", lost="its node n1 was lost")
    agent.client.close()
    await conclude(engine, job, running)
    with pytest.raises(PodWaitsError, match="not deleted yet"):
        await engine.resume(bed.owner, 1, "apply")
    await until(lambda: failures >= 3)
    is_down = False
    await until(lambda: not engine._deletions)
    assert await engine.resume(bed.owner, 1, "apply") is None
    assert await bed.objects("secrets") == []


async def test_a_run_whose_lines_cannot_be_stored_fails_with_the_cause_and_leaves_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    engine, job, running, agent = await begin(bed)
    monkeypatch.setattr(Spool, "add", fail)
    agent.line(status="starting")
    result = await conclude(engine, job, running)
    assert result.outcome is Outcome.NOT_STARTED
    assert "the files of the run cannot be read or written ([Errno 28] No space left" in result.message
    assert await bed.objects("secrets") == []
    assert engine._root.kept._busy[job.run_dir] == 0


async def test_a_run_whose_folder_cannot_be_written_does_not_start_and_leaves_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    engine, job = await bed.engine(), bed.job()
    monkeypatch.setattr(Spool, "__init__", fail)
    result = await engine.run(job, events)
    assert result.outcome is Outcome.NOT_STARTED
    assert "No space left on device" in result.message
    assert (await bed.objects("secrets"), await bed.objects("jobs")) == ([], [])
    assert engine._root.kept._busy[job.run_dir] == 0
