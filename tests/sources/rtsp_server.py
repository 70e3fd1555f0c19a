"""A camera with a password: GStreamer's RTSP server, `rtsp_server.py {basic,digest} PASSWORD`.

It serves `/live` to the user `me` on a free port, which it prints. It runs in the system's Python,
which has GStreamer's bindings (Debian's gir1.2-gst-rtsp-server-1.0, gstreamer1.0-plugins-good).
"""

import sys

import gi

for name in ("Gst", "GstRtsp", "GstRtspServer"):
    gi.require_version(name, "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402 - as PyGObject has it

method, password = sys.argv[1:]
Gst.init(None)
server, auth, token = (
    GstRtspServer.RTSPServer(),
    GstRtspServer.RTSPAuth(),
    GstRtspServer.RTSPToken(),
)
token.set_string("media.factory.role", "user")
if method == "digest":
    auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    auth.add_digest("me", password, token)
else:
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic("me", password), token)
server.set_auth(auth)
factory = GstRtspServer.RTSPMediaFactory()
rights = "user, media.factory.access=(boolean)true, media.factory.construct=(boolean)true"
factory.add_role_from_structure(Gst.Structure.from_string(rights)[0])
factory.set_launch(
    "( videotestsrc is-live=true ! video/x-raw,format=I420,width=160,height=120,framerate=10/1 "
    "! jpegenc ! rtpjpegpay name=pay0 )"
)
server.get_mount_points().add_factory("/live", factory)
server.set_address("127.0.0.1")
server.set_service("0")
server.attach(None)
sys.stdout.write(f"{server.get_bound_port()}\n")
sys.stdout.flush()
GLib.MainLoop().run()
