"""Git: history, branches and commits of the workspace's `website` repository, by the git command.

Three tools come without annotations on purpose, as those of many real servers do: a gateway has to ask
before it first calls them.
"""

from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from nexus_gateway.demo.servers.common import READS, REMOVES, UNANNOTATED, make_server, serve
from nexus_gateway.demo.servers.git_command import GitError, run_git

LOG_FORMAT = "--format=%h %ad %an: %s"

# A leading dash would be read as an option.
Revision = Annotated[
    str, Field(description="Commit, branch or tag, such as HEAD or a short hash", pattern=r"^[^-\s]\S*$")
]
Branch = Annotated[str, Field(description="Name of the branch", pattern=r"^[^-\s]\S*$")]
TrackedPath = Annotated[str, Field(description="Path of a file in the repository", min_length=1)]


class Git:
    """The tools, over one repository."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def git_status(self) -> str:
        """Show the current branch and which files have changed since the last commit."""
        return self._run("status", "--short", "--branch")

    def git_log(
        self, limit: Annotated[int, Field(description="How many commits at most", ge=1, le=100)] = 10
    ) -> str:
        """Show the latest commits: hash, date, author and message."""
        return self._run("log", LOG_FORMAT, "--date=short", f"--max-count={limit}")

    def git_diff(
        self, path: Annotated[str, Field(description="Only this file; all files where empty")] = ""
    ) -> str:
        """Show the changes that are not committed yet, line by line."""
        only = [path] if path else []
        return self._run("diff", "--no-ext-diff", "HEAD", "--", *only) or "No uncommitted changes"

    def git_show(self, revision: Revision) -> str:
        """Show one commit: its message and the lines it changed."""
        return self._run("show", "--no-ext-diff", "--date=iso-strict", revision, "--")

    def git_compare_branches(self, base: Branch, branch: Branch) -> str:
        """List the commits that a branch has and a base branch has not."""
        commits = self._run("log", LOG_FORMAT, "--date=short", f"{base}..{branch}", "--")
        return commits or f"{branch} has no commit that {base} has not"

    def git_blame(self, path: TrackedPath) -> str:
        """Show who last changed each line of a file, and when."""
        return self._run("blame", "--date=short", "--", path)

    def git_list_branches(self) -> str:
        """List the branches; a star marks the current one."""
        return self._run("branch", "--list")

    def git_create_branch(self, name: Branch) -> str:
        """Create a branch at the current commit, without switching to it."""
        self._run("branch", name)
        return f"Created branch {name}"

    def git_switch_branch(self, name: Branch) -> str:
        """Switch the working files to another branch."""
        self._run("switch", name)
        return f"Switched to branch {name}"

    def git_commit(self, message: Annotated[str, Field(description="Commit message", min_length=1)]) -> str:
        """Commit all changes with a message."""
        self._run("add", "--all")
        self._run("commit", "--no-verify", "--quiet", f"--message={message}")
        return self._run("log", LOG_FORMAT, "--date=short", "--max-count=1")

    def git_discard_changes(self, path: TrackedPath) -> str:
        """Throw away the uncommitted changes of a file for good."""
        self._run("restore", "--staged", "--worktree", "--source=HEAD", "--", path)
        return f"{path} is as in the last commit"

    def _run(self, *arguments: str) -> str:
        if not self._repository.is_dir():
            raise ToolError(f"there is no repository {self._repository.name}/ in the workspace")
        try:
            return run_git(self._repository, *arguments)
        except GitError as error:
            raise ToolError(str(error)) from error


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    git = Git(workspace / "website")
    return make_server(
        "git",
        "The git repository of a small website.",
        [
            (git.git_status, READS),
            (git.git_log, READS),
            (git.git_diff, READS),
            (git.git_show, READS),
            (git.git_compare_branches, READS),
            (git.git_blame, READS),
            (git.git_list_branches, READS),
            (git.git_create_branch, UNANNOTATED),
            (git.git_switch_branch, UNANNOTATED),
            (git.git_commit, UNANNOTATED),
            (git.git_discard_changes, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
