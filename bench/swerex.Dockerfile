# The product's own image with SWE-ReX's server in it, so that the peer pays no install at start. Built by setup_peers.sh.
FROM sandbox-agent/base:latest
COPY site /opt/swerex
# fastapi compiles models while it is imported; without .pyc files the start would be slower than a usual install's.
RUN python3 -m compileall -q /opt/swerex \
    && printf '#!/bin/sh\nPYTHONPATH=/opt/swerex exec python3 -c "from swerex.server import main; main()" "$@"\n' > /usr/local/bin/swerex-remote \
    && chmod 0755 /usr/local/bin/swerex-remote \
    && swerex-remote --version
