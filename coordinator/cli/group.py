"""A group of commands whose list tells each in a whole sentence."""

import click


class Commands(click.Group):
    """A group whose list of commands has no sentence cut with dots."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; the first sentence of its help stands in the list."""
        cmd.short_help = cmd.short_help or _first_sentence(cmd.help or "")
        super().add_command(cmd, name)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")
