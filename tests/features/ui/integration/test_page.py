"""The page as people use it: with thousands of objects, with keys alone, and through a screen reader's eyes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.ui.integration.crowd import FEW, MANY

if TYPE_CHECKING:
    from tests.features.ui.integration.crowd import Crowd
    from tests.kit.browser import Reader

pytestmark = pytest.mark.xdist_group("browser")

KIND = "Memcached.v1alpha1.cache.example.com"
TAB, ENTER, BACK = "\ue004", "\ue007", "\ue003"
_TABS = 60

_WIDE = """
return [...document.querySelectorAll('table, main *')].filter((each) => !each.closest('.unseen, pre, .lane, thead'))
  .map((each) => [each.nodeName, each.className, Math.round(each.getBoundingClientRect().right)])
  .filter(([, , right]) => right > innerWidth)
"""
"""Elements beyond the right border of the window."""
_FIRST_SHOWN = """
const line = document.getElementById("opened"), pre = line.parentElement;
return Math.abs(line.offsetTop - pre.scrollTop) < 20 ? line.innerText : `not at ${line.innerText}`;
"""
_HEIGHT = "return document.querySelector('details.brief').getBoundingClientRect().height"
_ISOLATED = """
return [...document.querySelectorAll('td.message bdi')].some((each) =>
  each.textContent.startsWith('begin') && getComputedStyle(each).unicodeBidi === 'isolate')
"""


@pytest.mark.parametrize("count", [MANY])
def test_one_page_of_five_thousand_objects_is_shown_and_updated(crowd: Crowd, reader: Reader) -> None:
    reader.open(crowd.url)
    reader.await_text("5000 ready")
    reader.open(f"{crowd.url}#/objects")
    reader.await_text("5000 objects", "Page 1 of 100")
    assert len(reader.rows()) == 50
    assert reader.script("return document.querySelectorAll('*').length") < 1000

    crowd.fail("one-4711")
    reader.await_text("no such image: memcached:9.9")
    assert reader.rows()[0][0].startswith("shop/one-4711"), "the worst comes first"

    reader.script("document.getElementById('next').click()")
    reader.await_text("Page 2 of 100", "shop/one-0060")
    reader.script("location.hash = '#/objects?search=one-471'")
    reader.await_text("10 objects", "Page 1 of 1")
    assert "one-0060" not in reader.text()
    reader.script("location.hash = '#/queue'")
    reader.await_text("1 entry", "scheduled", "retry", "due in")


def test_failures_of_one_cause_are_one_row_until_each_object_has_succeeded(crowd: Crowd, reader: Reader) -> None:
    for name in ("one-0001", "one-0002", "one-0001"):
        crowd.fail(name)
    reader.open(crowd.url)
    reader.await_text("2 failing", "Latest failures")
    header = str(reader.script("return document.querySelector('header').innerText"))
    assert "shop-operator" in header
    assert "https://cluster.example.com:6443" in header
    (row,) = [row for row in reader.rows() if row[0].startswith("Step 2: no such image")]
    assert row[1:4] == ["failed", "shop/one-0001, shop/one-0002 Memcached", "3"]
    assert row[5].startswith("retry in")
    crowd.succeed("one-0001")
    reader.await_text("1 failing")
    assert any(row[1:3] == ["failed", "shop/one-0002 Memcached; 1 resolved"] for row in reader.rows())
    crowd.succeed("one-0002")
    reader.await_text("resolved")


def test_the_rest_of_a_long_message_is_folded(crowd: Crowd, reader: Reader) -> None:
    crowd.fail("one-0001", "begin " + "x" * 3000 + " the end")
    for view in ("#/", "#/runs", f"#/object/{KIND}/shop/one-0001"):
        reader.open(crowd.url + view)
        reader.await_text("begin xxx")
        assert reader.script(_HEIGHT) < 60, "two lines are shown"
        assert "the end" not in reader.script("return document.querySelector('details.brief').innerText")
        reader.script(_UNFOLD)
        assert reader.script(_HEIGHT) > 100
        assert "the end" in reader.script("return document.querySelector('details.brief').innerText")


def test_long_words_break_and_tables_are_not_wider_than_the_window(crowd: Crowd, reader: Reader) -> None:
    name = "n" * 205
    crowd.fail(name, "m" * 3000)
    for width in (1280, 390):
        reader.resize(width)
        for view in ("#/", "#/runs", "#/objects", "#/queue", f"#/object/{KIND}/shop/{name}"):
            reader.open(crowd.url + view)
            reader.await_text(name)
            reader.script(_UNFOLD)
            assert reader.script(_WIDE) == [], f"{view} in a window of {width}"


def test_control_characters_are_shown_and_texts_of_users_do_not_reorder_others(crowd: Crowd, reader: Reader) -> None:
    crowd.fail("one-0001", "begin \u202eesrever\u2066\x07 \u05d0\u05d1 end")
    for view in ("#/", "#/runs", f"#/object/{KIND}/shop/one-0001"):
        reader.open(crowd.url + view)
        assert "\u202e" not in reader.await_text("begin \\u202eesrever\\u2066\\x07 \u05d0\u05d1 end")
    reader.open(f"{crowd.url}#/runs")
    reader.await_text("begin")
    reader.until(lambda: reader.script(_ISOLATED), "the message to be isolated from the place behind it")


def test_runs_are_filtered_and_come_in_pages(crowd: Crowd, reader: Reader) -> None:
    for number in range(60):
        crowd.succeed(f"one-{number:04}")
    crowd.fail("one-0007")
    crowd.fail("one-4000")
    crowd.succeed("one-4000")
    reader.open(f"{crowd.url}#/runs")
    reader.await_text("63 runs", "Page 1 of 2")
    reader.script("location.hash = '#/runs?result=unresolved'")
    reader.await_text("1 run\n", "shop/one-0007")
    reader.script("location.hash = '#/runs?result=failed&search=4000'")
    # Not only "resolved": the options of the filter contain it.
    reader.await_text("1 run\n", "shop/one-4000")
    (row,) = reader.rows()
    assert row[0].startswith("shop/one-4000")
    assert any("failed resolved" in cell for cell in row)


def test_an_object_shows_its_cause_once_its_failures_counted_and_its_fields_without_secrets(
    crowd: Crowd, reader: Reader
) -> None:
    for _ in range(3):
        crowd.fail("one-0001")
    reader.open(f"{crowd.url}#/object/{KIND}/shop/one-0001")
    text = reader.await_text(
        "Cause\nno such image: memcached:9.9", "Failed task\nStep 2", "3 times", "Next run\nretry in"
    )
    assert len([row for row in reader.rows() if "3 times" in " ".join(row)]) == 1
    assert "Deployment (apps/v1)" in text
    assert "in progress" in text
    assert "0 of 2 ready: ImagePullBackOff" in text
    assert "size: 3\npassword: ********" in text
    assert "delayed" not in text


def test_the_output_of_a_failed_run_opens_at_the_failure(crowd: Crowd, reader: Reader) -> None:
    ident = crowd.fail("one-0001")
    reader.open(f"{crowd.url}#/run/{KIND}/shop/one-0001/{ident}")
    reader.await_text("TASK [memcached : Step 2]", "fatal: [localhost]")
    reader.until(
        lambda: reader.script(_FIRST_SHOWN).startswith("TASK [memcached : Step 2]"), "the failed task in sight"
    )


def test_a_kind_without_its_crd_is_waited_for(crowd: Crowd, reader: Reader) -> None:
    reader.open(crowd.url)
    reader.await_text(f"{FEW} ready", "live")
    crowd.do(lambda: setattr(crowd.kind.informer, "is_missing", True))
    reader.await_text("waiting for its CRD")


def test_a_run_shows_its_items_objects_diffs_and_output(crowd: Crowd, reader: Reader) -> None:
    ident = crowd.succeed("one-0007")
    reader.open(f"{crowd.url}#/run/{KIND}/shop/one-0007/{ident}")
    reader.await_text("2 items: 1 changed, 1 ok", "YAML", "TASK [memcached : Create the settings]")
    assert "password" not in reader.text(), "details are folded"
    reader.script(_UNFOLD)
    text = reader.text()
    assert "changed settings\nok login" in text
    assert "-  max-connections: '512'\n+  max-connections: '1024'" in text
    assert "password: (hidden)" in text
    assert "aHVudGVy" not in text
    assert "managedFields" not in text
    rows = [row[:3] for row in reader.rows() if "(v1)" in row[0]]
    assert rows == [
        ["shop/settings ConfigMap (v1)", "created", "Create the settings"],
        ["login Secret (v1)", "unchanged", "Create the settings"],
    ]
    assert "ansible-operator logs Memcached.cache.example.com/one-0007 -n shop --runner-dir=" in text
    assert "shop/run-7b0c-3-x9z on node-1\nkubectl logs -n shop job/run-7b0c-3" in text
    assert "kubectl describe node node-1" in text
    crowd.fail("one-0008")  # an update of the page
    reader.until(lambda: reader.script("return overview.failures.length") == 1, "the update")
    assert "password: (hidden)" in reader.text(), "an update folds nothing"


def test_the_plan_of_an_object_is_shown_as_a_diff_with_the_command_that_approves_it(
    crowd: Crowd, reader: Reader
) -> None:
    crowd.plan("one-0009")
    reader.open(f"{crowd.url}#/object/{KIND}/shop/one-0009")
    text = reader.await_text("1 object to change", "spec.replicas", "- 3", "+ 5")
    assert "shop/web Deployment" in text
    assert (
        "kubectl annotate --overwrite memcached.v1alpha1.cache.example.com one-0009 -n shop "
        "ansible.sdk.operatorframework.io/approve=3b0f"
    ) in text
    assert reader.complaints() == []


def _tab_to(reader: Reader, wanted: str) -> None:
    """Go on by Tab until something has the focus that begins so; all on the way shows that it has."""
    for _ in range(_TABS):
        reader.press(TAB)
        assert reader.shows_focus(), f"the focus on {reader.focused_text()!r} cannot be seen"
        if reader.focused_text().startswith(wanted):
            return
    pytest.fail(f"Tab does not come to {wanted!r}; the page says:\n{reader.text()}")


def test_the_keyboard_alone_leads_from_the_overview_to_the_failed_line(crowd: Crowd, reader: Reader) -> None:
    crowd.fail("one-0007")
    reader.open(crowd.url)
    reader.await_text("1 failing", f"{FEW - 1} ready")
    _tab_to(reader, "Skip to content")
    reader.press(ENTER)
    reader.until(lambda: reader.focused().tag_name == "main", "the content to have the focus")

    reader.open(crowd.url)
    reader.await_text("1 failing")
    _tab_to(reader, "Objects")
    reader.press(ENTER)
    reader.await_heading("Objects")
    reader.until(lambda: reader.focused().tag_name == "h1", "the new view's heading to have the focus")
    _tab_to(reader, "search")
    reader.press("one-000")
    reader.await_text("10 objects")
    _tab_to(reader, "shop/one-0007")
    crowd.fail("one-0003")
    reader.await_text("failing", "shop/one-0003")
    reader.until(lambda: len([row for row in reader.rows() if "failing" in row[1]]) == 2, "what changed to show")
    assert reader.focused_text() == "shop/one-0007", "what changes takes the focus from nobody"
    reader.press(ENTER)
    reader.await_heading("Memcached shop/one-0007")
    reader.await_text("Failed task\nStep 2 /opt/ansible/roles/memcached/tasks/main.yml:7")
    _tab_to(reader, reader.script("return document.querySelector('main td a time, main th a time').innerText")[:8])
    reader.press(ENTER)
    reader.await_heading("Run of Memcached shop/one-0007")
    reader.await_text("2 tasks", "roles/memcached/tasks/main.yml:7", "no such image", "changed: spec.image", "12 in")
    reader.script("history.back()")
    reader.await_heading("Memcached shop/one-0007")


_UNFOLD = "for (const each of document.querySelectorAll('details')) each.open = true"


def _name(node: dict[str, Any]) -> str:
    return str(node.get("name", {}).get("value") or "").strip()


def _level(node: dict[str, Any]) -> int:
    return next(int(each["value"]["value"]) for each in node["properties"] if each["name"] == "level")


def _look(tree: list[dict[str, Any]]) -> None:
    """Hold what a screen reader is given against what one needs to find one's way."""
    by_id = {node["nodeId"]: node for node in tree}
    nodes = [node for node in tree if not node["ignored"]]
    of = {role: [node for node in nodes if node["role"]["value"] == role] for role in _roles(nodes)}
    assert {len(of.get(role, [])) for role in ("banner", "main")} == {1}
    assert "Views" in {_name(node) for node in of["navigation"]}
    assert of["status"], "there is a live region"
    assert _name(of["RootWebArea"][0]).endswith("Ansible operator")
    levels = [_level(node) for node in of["heading"]]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    for role in ("link", "button", "searchbox", "combobox", "table", "columnheader", "rowheader", "heading", "region"):
        for node in of.get(role, []):
            assert _name(node), f"a {role} has no name"
    assert of["table"]
    for table in of["table"]:
        rows = [node for node in of["row"] if _is_below(node, table, by_id)]
        held = [Counter(_roles(_below(row, nodes, by_id))) for row in rows]
        assert held[0]["columnheader"] > 1
        for row in held[1:]:
            assert row["rowheader"] == 1
            assert row["rowheader"] + row["cell"] == held[0]["columnheader"]


def _roles(nodes: list[dict[str, Any]]) -> list[str]:
    return [node["role"]["value"] for node in nodes]


def _is_below(node: dict[str, Any], above: dict[str, Any], by_id: dict[str, Any]) -> bool:
    parent = by_id.get(node.get("parentId", ""))
    while parent is not None and parent is not above:
        parent = by_id.get(parent.get("parentId", ""))
    return parent is above


def _below(above: dict[str, Any], nodes: list[dict[str, Any]], by_id: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in nodes if _is_below(node, above, by_id)]


@pytest.mark.full
def test_a_screen_reader_finds_its_way_in_every_view(crowd: Crowd, reader: Reader) -> None:
    crowd.fail("one-0007")
    views = {
        "#/": "Latest failures",
        "#/objects?search=one-000": "10 objects",
        "#/queue": "1 entry",
        "#/runs": "Finished",
        f"#/object/{KIND}/shop/one-0007": "Conditions",
        f"#/run/{KIND}/shop/one-0007/20261121T110000.000001Z-aaaaaa": "2 tasks",
        f"#/run/{KIND}/shop/one-0008/{crowd.succeed('one-0008')}": "YAML",
    }
    for width, scheme in ((1280, "light"), (390, "dark")):
        reader.resize(width)
        reader.prefer(scheme)
        for view, sign in views.items():
            reader.open(crowd.url + view)
            reader.await_text(sign)
            reader.script(_UNFOLD)
            _look(reader.tree())
            assert reader.violations() == [], f"{view} in {scheme}, {width} pixels"
            wide = reader.script("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{view} is wider than a window of {width}"
