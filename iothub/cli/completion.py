"""`iothub completion`: print the lines by which a shell completes commands, options and names.

Knows no value: `iothub.cli.completed_values` does, and click speaks to the shell that runs the lines.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from iothub.cli import output
from iothub.cli.app import App, Command

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "iothub", "_IOTHUB_COMPLETE"


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
def command(app: App, shell: str) -> None:
    """Print the lines with which bash (4.4 or newer), zsh or fish completes commands, options, names, limits and settings.

    Put the line into ~/.bashrc, or into ~/.zshrc behind `compinit`; fish reads the file of its folder by itself.

    Examples:
      eval "$(iothub completion bash)"
      eval "$(iothub completion zsh)"
      iothub completion fish > ~/.config/fish/completions/iothub.fish
    """
    script = script_for(shell)
    if app.form in {"json", "jsonl"}:
        app.record({"shell": shell, "script": script})
        return
    output.write_text(script, end="")


def script_for(shell: str) -> str:
    """Return the lines for one of SHELLS, whether or not that shell is on this machine."""
    kind = get_completion_class(shell)
    if kind is None:
        raise NotImplementedError(f"click has no completion for {shell}")
    found = kind(click.Command(PROGRAM), {}, PROGRAM, VARIABLE)
    return str(found.source_template % found.source_vars())
