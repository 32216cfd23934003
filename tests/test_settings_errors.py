"""What people are told about a malformed `nexus.toml`: file, line, key, what was expected, and no secret."""

import textwrap
import traceback

import pytest

from nexus_gateway.settings import SettingsError, load_settings


@pytest.fixture
def error_of(tmp_path):
    def fail(content):
        path = tmp_path / "nexus.toml"
        path.write_text(textwrap.dedent(content), encoding="utf-8")
        with pytest.raises(SettingsError) as caught:
            load_settings(path, environ={})
        return caught.value

    return fail


@pytest.fixture
def problems_of(error_of):
    def fail(content):
        return [f"{problem.line}: {problem.key}: {problem.message}" for problem in error_of(content).problems]

    return fail


def test_the_error_of_a_malformed_file_is_readable(error_of, tmp_path):
    error = error_of('[servers.files]\ncommand = "x"\ntimeout_seconds = "soon"\n')
    path = tmp_path / "nexus.toml"
    assert str(error) == f'{path}:3: servers.files.timeout_seconds: expected a number of seconds, got "soon"'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('cachedir = "x"', "1: cachedir: unknown key; did you mean `cache_dir`?"),
        ("[modles]", "1: modles: unknown key; did you mean `models`?"),
        ("[log]\n\nlevle = 1", "3: log.levle: unknown key; did you mean `level`?"),
        ("[log]\nzzz = 1", "2: log.zzz: unknown key; known here: level, format"),
        ("[servers.a]\ndisabled = true", "2: servers.a.disabled: unknown key; did you mean `enabled`?"),
        (
            "[servers.a.tools.b]\nreadonly = true",
            "2: servers.a.tools.b.readonly: unknown key; did you mean `read_only`?",
        ),
        ("models = 5", "1: models: expected a table, got 5"),
        ("servers = []", "1: servers: expected a table, got a list"),
        ('[servers]\na = "npx"', '2: servers.a: expected a table, got "npx"'),
        (
            '[models]\npreset = "big"',
            '2: models.preset: expected "offline", "balanced", "paper" or "multilingual", got "big"',
        ),
        ("[models]\nthreads = 0", "2: models.threads: expected a whole number of at least 1, got 0"),
        ('[models]\nthreads = "4"', '2: models.threads: expected a whole number, got "4"'),
        ("[models]\nargument = ''", '2: models.argument: expected a string that is not empty, got ""'),
        ("[turn]\nexplain = 1", "2: turn.explain: expected true or false, got 1"),
        (
            "[turn]\ndeadline_seconds = 0",
            "2: turn.deadline_seconds: expected a number of seconds above 0 and at most 86400, got 0",
        ),
        (
            "[turn]\ndeadline_seconds = inf",
            "2: turn.deadline_seconds: expected a number of seconds above 0 and at most 86400, got inf",
        ),
        (
            "[turn]\ndeadline_seconds = true",
            "2: turn.deadline_seconds: expected a number of seconds, got true",
        ),
        ("[routing]\nthreshold = nan", "2: routing.threshold: expected a number from 0 to 1, got nan"),
        ("[routing]\nthreshold = 1.5", "2: routing.threshold: expected a number from 0 to 1, got 1.5"),
        ("[routing]\nthreshold = 2020-01-01", "2: routing.threshold: expected a number, got 2020-01-01"),
        ("[http]\nport = 99999", "2: http.port: expected a port number from 0 to 65535, got 99999"),
        ('[http]\nallowed_hosts = "h"', '2: http.allowed_hosts: expected a list of strings, got "h"'),
        ("[http]\nallowed_hosts = [1]", "2: http.allowed_hosts[0]: expected a string, got 1"),
        ('[servers.a]\nera = "new"', '2: servers.a.era: expected "legacy" or "modern", got "new"'),
        (
            '[servers.a]\nconfirm = "no"',
            '2: servers.a.confirm: expected "auto", "always" or "never", got "no"',
        ),
        ("[servers.a]\nenv = { PORT = 80 }", "2: servers.a.env.PORT: expected a string, got a number"),
        ("[servers.a]\nenv = 5", "2: servers.a.env: expected a table of strings, got a number"),
        ("[log]\nlevel =", "2: : not valid TOML: Invalid value (at end of document)"),
        (
            "[log]\nlevel 5\n",
            "2: : not valid TOML: Expected '=' after a key in a key/value pair (at line 2, column 7)",
        ),
    ],
)
def test_whatever_is_malformed_has_a_line_a_key_and_what_was_expected(problems_of, content, expected):
    assert problems_of(content) == [expected]


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file(problems_of):
    content = """\
        # a comment

        mcp_config = [
            "a.json",
            5,
        ]
        [servers.one]
        args = [
            '''
            timeout_seconds = 1
            ''',
        ]
        timeout_seconds = "x"
        [servers.one.tools.timeout_seconds]
        timeout_seconds = "y"
        [servers.two]
        timeout_seconds = "z"
        """
    assert [problem.split(": ")[:2] for problem in problems_of(content)] == [
        ["3", "mcp_config[1]"],
        ["13", "servers.one.timeout_seconds"],
        ["15", "servers.one.tools.timeout_seconds.timeout_seconds"],
        ["17", "servers.two.timeout_seconds"],
    ]


@pytest.mark.parametrize("raw", [b"a = '\xff'", b"a = " + b"[" * 50_000, b"a = " + b"9" * 5_000])
def test_a_file_that_can_not_be_parsed_at_all_is_an_error_for_people(tmp_path, raw):
    path = tmp_path / "nexus.toml"
    path.write_bytes(raw)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ={})
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "content",
    [
        "[servers.a]\nurl = 'https://h'\nheaders = 'hunter2'",
        "[servers.a]\nurl = 'https://h'\nheaders.A = ['hunter2']",
        "[servers.a]\ncommand = 'x'\nenv = ['hunter2']",
        "[servers.a]\ncommand = 'x'\nargs = 'hunter2'",
        "[servers.a]\nurl = { hunter2 = 1 }",
        "[http]\ntoken_env = 'hunter2-and-more'",
        "[servers.a]\nenv.KEY = 'hunter2",
        "[servers.a]\nenv.KEY = hunter2",
    ],
)
def test_secrets_are_in_no_error_and_no_traceback(error_of, content):
    error = error_of(content)
    assert "hunter2" not in str(error)
    assert "hunter2" not in repr(error.problems)
    assert "hunter2" not in "".join(traceback.format_exception(error))


def test_a_file_with_very_many_faults_names_the_first_ones(problems_of):
    assert len(problems_of("\n".join(f"key{number} = 1" for number in range(300)))) == 50
