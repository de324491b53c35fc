"""A real Milvus server for one command: `python milvus_server.py FOLDER COMMAND...`, in a network of its own.

Milvus 2.3 listens on all interfaces whatever its configuration says. Run under `unshare --net` there is none but the
loopback, which nobody outside can reach. The command finds the address in CENOTE_MILVUS.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


def main(folder: Path, command: list[str]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))
    if socket.if_nameindex() != [(1, "lo")]:
        raise SystemExit("this is no network of its own: the server would be open to others")
    from milvus import MilvusServer

    unpacked = Path(tempfile.gettempdir()) / f"cenote-milvus-2.3.5-{os.getuid()}"  # 15 seconds, once
    unpacked.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bin").symlink_to(unpacked)
    server = MilvusServer(wait_for_started=False)
    server.set_base_dir(str(folder))
    server.start()
    try:
        server.wait_started(90_000)
        address = f"http://127.0.0.1:{server.listen_port}"
        return subprocess.call(command, env={**os.environ, "CENOTE_MILVUS": address})
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
