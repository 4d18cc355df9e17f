"""Text to run a verifier over: bundled, external, or the user's own. Imports no torch.

A manifest names a corpus, and `corpus_documents` gives its text: checked against its hashes if it
lies beside the manifest (`stored`), else drawn from its source (`external`). `own_documents`
reads files that have no manifest.
"""

from audit.corpora.bundled import bundled_folder, external_corpora, find_corpus, load_corpora
from audit.corpora.documents import Document
from audit.corpora.external import corpus_documents
from audit.corpora.manifest import Corpus, HubSource, Manifest, read_corpus
from audit.corpora.own_files import own_documents
from audit.corpora.stored import verify

__all__ = [
    "Corpus",
    "Document",
    "HubSource",
    "Manifest",
    "bundled_folder",
    "corpus_documents",
    "external_corpora",
    "find_corpus",
    "load_corpora",
    "own_documents",
    "read_corpus",
    "verify",
]
