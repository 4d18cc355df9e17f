"""One file per page; `app` names them."""
