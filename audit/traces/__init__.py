"""A model and a text become a `Trace`: hidden states with the verifier's own greedy tokens.

`trace` is the file, `find` where traces are looked for, `recipe` what one is made from, `verifier`
the model, `generate` text of its own, `capture` the run over a text (`audit.corpora`), `suite` a
folder of such runs. Only `trace` and `find` are imported here, so that reading a trace never loads
transformers.
"""

from audit.traces.find import find_traces
from audit.traces.together import read_traces
from audit.traces.trace import Trace, lookahead_rows, read_trace, write_trace

__all__ = ["Trace", "find_traces", "lookahead_rows", "read_trace", "read_traces", "write_trace"]
