"""What a user calls a text: the name of its corpus and its language, as a trace keeps them.

Names that come from files are cleaned instead of refused: nobody chose them here.
"""

from __future__ import annotations

import re

from audit.errors import BadUsageError

_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*|code:\w[\w.+#-]*")
_LONGEST = 100


def check_names(corpus: str | None, language: str | None) -> None:
    """Raise BadUsageError for a `--corpus` that is no plain name, or a `--language` that is none.

    None stands for what was not given.
    """
    from audit.corpora.manifest import NAME

    if corpus is not None and (len(corpus) > _LONGEST or not re.fullmatch(NAME, corpus)):
        raise BadUsageError(
            f"--corpus {corpus[:_LONGEST]!r} is not a plain name",
            hint="a corpus goes by letters, digits, dot, dash and underscore, such as my-code",
        )
    if language is not None and (len(language) > _LONGEST or not _LANGUAGE.fullmatch(language)):
        raise BadUsageError(
            f"--language {language[:_LONGEST]!r} is no language tag",
            hint="give a BCP 47 tag such as de or zh-Hans, or code:python",
        )
