"""How the guide's test reads the guide."""

from __future__ import annotations

import pytest

from tests.kit.guide_text import Commands, File, GuideError, Keys, Shown, matches, steps

GUIDE = """\
# A guide

First this:

```sh
one \\
  thing
another
```

It prints

```text
…
done
```

```sh stays
server
```

```text
ready
```

At the end of `some/file.yml`:

```yaml
- more
```

```sh terminal=2
look
```

```text
nothing
```

```text terminal=1
asked
```

```console
never
```

```keys
Ctrl-C
```
"""


def test_each_block_has_the_type_of_its_info_string() -> None:
    assert steps(GUIDE) == [
        Commands(1, ("one thing", "another"), stays=False),
        Shown(1, ("…", "done"), of_commands=True),
        Commands(1, ("server",), stays=True),
        Shown(1, ("ready",), of_commands=False),
        File("some/file.yml", "- more\n", added=True),
        Commands(2, ("look",), stays=False),
        Shown(2, ("nothing",), of_commands=True),
        Shown(1, ("asked",), of_commands=False),
        Keys(1),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "This:\n\n```bash\nls\n```\n",
        "This:\n```sh\nls\n```\n",
        "This:\n\n```keys\nEscape\n```\n",
        "No file is named:\n\n```yaml\na: 1\n```\n",
    ],
)
def test_a_block_that_no_test_runs_is_refused(text: str) -> None:
    with pytest.raises(GuideError):
        steps(text)


def test_output_is_compared_in_order_and_regardless_of_spaces() -> None:
    said = "NAME    READY\nbasket  True   5s\n"
    assert matches(("NAME READY", "basket True …"), said)
    assert matches(("basket … 5s",), said)
    assert not matches(("basket True", "NAME READY"), said)
    assert not matches(("basket False",), said)
