"""Videos and streams of a real ffmpeg, whole, turned, broken, silent and lost."""

from __future__ import annotations

import base64
import itertools
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from launcher.config.ends.source import FrameRefusedError, SourceFrame, SourceLostError
from launcher.errors import BadInputError, LauncherError
from launcher.inputs.images import MOST_PIXELS
from launcher.sources.video import VideoConfig
from tests.sources import compare_counts
from tests.sources.media import (
    HEIGHT,
    MPEGTS,
    RATE,
    WIDTH,
    bars,
    ffmpeg,
    free_port,
    number_in,
    streaming,
    write_video,
)

FRAMES = 60


def frames_of(path: Path | str, **keys: object) -> list[SourceFrame]:
    return list(VideoConfig.model_validate({"url": str(path), **keys}).open(Path()).frames())


def until_error(path: Path, **keys: object) -> tuple[list[SourceFrame], LauncherError | None]:
    """The frames before an error, and the error; those that are refused are left out."""
    found, _, error = read(path, **keys)
    return found, error


def read(
    path: Path, **keys: object
) -> tuple[list[SourceFrame], list[FrameRefusedError], LauncherError | None]:
    """The frames before an error, what was refused, and the error."""
    source = VideoConfig.model_validate({"url": str(path), **keys}).open(Path())
    found: list[SourceFrame] = []
    refused: list[FrameRefusedError] = []
    while True:
        try:
            for frame in source.frames():
                found.append(frame)  # noqa: PERF402 - those before the error count
        except FrameRefusedError as error:  # noqa: PERF203
            refused.append(error)
        except LauncherError as error:
            return found, refused, error
        else:
            return found, refused, None


def image(frame: SourceFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    assert isinstance(frame.data, np.ndarray)
    return frame.data


def refused(path: Path) -> str:
    """The sentence by which a video is refused."""
    with pytest.raises(BadInputError) as caught:
        frames_of(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.avi", "a.mov", "a.webm", "a.mjpeg"])
def test_every_frame_of_a_file_comes_once_with_its_time(tmp_path: Path, name: str) -> None:
    found = frames_of(write_video(tmp_path / name, FRAMES, "-b:v", "500k"))
    assert [number_in(image(frame)) for frame in found] == list(range(FRAMES))
    assert {image(frame).shape for frame in found} == {(HEIGHT, WIDTH, 3)}
    times = [frame.media_s for frame in found]
    assert times == pytest.approx([number / RATE for number in range(FRAMES)], abs=0.002)


def test_colours_are_red_green_and_blue(tmp_path: Path) -> None:
    path = tmp_path / "red.mp4"
    ffmpeg("-f", "lavfi", "-i", "color=red:size=64x64", "-frames:v", "1", path)
    (frame,) = frames_of(path)
    assert image(frame).mean(axis=(0, 1)) == pytest.approx([254, 0, 0], abs=4)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_video_that_was_taken_on_its_side_is_turned_upright(tmp_path: Path, degrees: int) -> None:
    plain, turned = write_video(tmp_path / "plain.mp4", 3), tmp_path / "turned.mp4"
    ffmpeg("-display_rotation", str(degrees), "-i", plain, "-c", "copy", turned)
    ffmpeg("-i", turned, "-frames:v", "1", tmp_path / "upright.png")  # ffmpeg turns it itself
    upright = np.asarray(Image.open(tmp_path / "upright.png").convert("RGB"))
    found = image(frames_of(turned)[0])
    assert found.shape == upright.shape
    assert np.abs(found.astype(int) - upright).mean() < 8


def test_a_file_is_not_live_and_an_address_or_device_is(tmp_path: Path) -> None:
    path = str(write_video(tmp_path / "a.mp4", 1))
    for keys, is_live in (
        ({"url": path}, False),
        ({"url": path, "live": True}, True),
        ({"url": "rtsp://camera/a"}, True),
        ({"url": "http://host/a.mp4", "live": False}, False),
        ({"url": "/dev/video0"}, True),
        ({"url": "testsrc", "format": "lavfi"}, True),
    ):
        assert VideoConfig.model_validate(keys).open(tmp_path).is_live is is_live


def test_whatever_else_ffmpeg_opens_is_a_source(tmp_path: Path) -> None:
    config = VideoConfig(url="testsrc=size=32x24:rate=5", format="lavfi")
    source = config.open(tmp_path)
    for frame, number in zip(source.frames(), range(3), strict=False):
        assert image(frame).shape == (24, 32, 3)
        assert frame.media_s == pytest.approx(number / 5)
    source.close()


# ---------------------------------------------------------------- broken files


def test_a_truncated_file_gives_what_is_whole_and_then_a_sentence(tmp_path: Path) -> None:
    path = write_video(tmp_path / "cut.mp4", 200, "-g", "20", "-movflags", "faststart")
    os.truncate(path, path.stat().st_size // 2)
    found, error = until_error(path)
    assert isinstance(error, BadInputError)
    assert f"cut.mp4: is broken after {len(found)} frames: a part of it is missing" in str(error)
    assert len(found) > 50
    assert [number_in(image(frame)) for frame in found] == list(range(len(found)))


def test_a_file_that_is_no_video_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    whole = write_video(tmp_path / "whole.mp4", 20).read_bytes()  # its index is at its end
    for content in (b"", bytes(100_000), np.random.default_rng(0).bytes(100_000), whole[:-99]):
        path.write_bytes(content)
        assert re.search("cannot be read as a video: |holds no picture", refused(path))
    ffmpeg("-f", "lavfi", "-i", "sine=duration=0.2", path)
    assert refused(path).endswith("holds no video")


@pytest.mark.parametrize(("width", "height"), [(12_000, 10_000), (65_535, 65_535), (65_535, 1_700)])
def test_the_size_that_a_video_claims_is_checked_before_memory_is_used(
    tmp_path: Path, width: int, height: int
) -> None:
    path = tmp_path / "a.gif"
    picture = Image.fromarray(np.zeros((8, 8), np.uint8))
    picture.save(path)
    content = bytearray(path.read_bytes())
    content[6:10] = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    path.write_bytes(content)
    code = (
        "import resource, sys; from pathlib import Path; import av;"
        "from launcher.errors import BadInputError;"
        "from launcher.config.ends.source import FrameRefusedError;"
        "from launcher.sources.video import VideoConfig\n"
        "source = VideoConfig(url=sys.argv[1]).open(Path())\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "while True:\n"
        "  try: list(source.frames())\n"
        "  except FrameRefusedError: continue\n"
        "  except BadInputError as error: print(error, '|', peak() - before)\n"
        "  break\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    said, _, grown_kib = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rpartition("|")
    assert width * height > MOST_PIXELS
    assert "more than 110 million pixels" in said
    assert int(grown_kib) < 64 << 10


@pytest.mark.parametrize("form", [None, "concat", "hls"])
def test_a_file_cannot_make_the_launcher_open_others(tmp_path: Path, form: str | None) -> None:
    """`tests.fuzz.video_files` tries more of them, and watches what libav opens."""
    other = write_video(tmp_path / "other.mp4", 2)
    path = tmp_path / "a.mp4"
    for content in (
        f"ffconcat version 1.0\nfile {other.name}\n",
        f"ffconcat version 1.0\nfile {other}\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other.name}\n#EXT-X-ENDLIST\n",
    ):
        path.write_text(content)
        found, _, error = read(path, format=form, options={"safe": "0"})
        assert found == []
        assert isinstance(error, BadInputError)
        assert "cannot be read as a video: " in str(error)


def test_the_picture_of_a_cover_is_not_the_video(tmp_path: Path) -> None:
    video, cover = write_video(tmp_path / "plain.mp4", 20), tmp_path / "cover.jpg"
    ffmpeg("-f", "lavfi", "-i", "color=red:size=640x480", "-frames:v", "1", cover)
    join = ("-i", cover, "-i", video, "-map", "0", "-map", "1", "-c", "copy")
    for path in (tmp_path / "covered.mp4", tmp_path / "covered.mkv"):
        ffmpeg(*join, path)
        assert [number_in(image(frame)) for frame in frames_of(path)] == list(range(20))
    sound = ("-f", "lavfi", "-i", "sine=duration=0.2", "-i", cover, "-map", "0", "-map", "1")
    ffmpeg(*sound, "-c:v", "copy", "-disposition:v", "attached_pic", tmp_path / "sound.mp4")
    assert refused(tmp_path / "sound.mp4").endswith("holds no video")


def test_recordings_that_were_joined_give_the_frames_of_all(tmp_path: Path) -> None:
    one, path = write_video(tmp_path / "one.ts", 40), tmp_path / "joined.ts"
    path.write_bytes(one.read_bytes() * 2)
    assert [number_in(image(frame)) for frame in frames_of(path)] == [*range(40)] * 2


def test_a_file_continues_after_packets_that_were_lost(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.ts", 200, "-g", "20", "-b:v", "2M")
    content = bytearray(path.read_bytes())
    begin = 188 * (len(content) // 188 // 2)
    del content[begin : begin + 5 * 188]
    path.write_bytes(content)
    found, error = until_error(path)
    assert error is None
    numbers = [number_in(image(frame)) for frame in found]
    assert 150 < len(numbers) < 200
    assert numbers[:80] == list(range(80))
    assert numbers[-60:] == list(range(140, 200)), "from the next key frame on all are whole"


def test_a_picture_of_a_file_that_cannot_be_decoded_is_counted_and_left_out(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", 50, "-c:v", "libx264", "-g", "10", "-bf", "0")
    with av.open(path) as container:
        sizes = [(packet.pos, packet.size) for packet in container.demux() if packet.size]
    content = bytearray(path.read_bytes())
    for index in (25, 33):
        place, size = sizes[index]
        content[place + 12 : place + size] = bytes(size - 12)
    path.write_bytes(content)
    found, refused, error = read(path)
    assert error is None
    assert len(refused) >= 1
    assert len(found) + len(refused) == 50
    assert all(str(each).startswith(f"{path}: ") for each in refused)
    numbers = [number_in(image(frame)) for frame in found]
    assert numbers[:25] == list(range(25))
    assert numbers[-10:] == list(range(40, 50))


@pytest.mark.slow
def test_joined_and_damaged_files_give_as_many_frames_as_ffmpeg_decodes() -> None:
    assert compare_counts.main() == 0


def test_an_empty_packet_is_not_the_end(tmp_path: Path) -> None:
    """Some containers store one where a recorder has dropped a frame."""
    whole, path = write_video(tmp_path / "a.avi", 20, "-c:v", "mjpeg"), tmp_path / "a.nut"
    with av.open(whole) as source, av.open(path, "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            given = av.Packet(b"") if number == 7 else packet
            given.pts, given.dts, given.time_base = packet.pts, packet.dts, packet.time_base
            given.stream = stream
            if number < 20:
                target.mux(given)
    assert [number_in(image(frame)) for frame in frames_of(path)] == [*range(7), *range(8, 20)]


# ---------------------------------------------------------------- streams


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/live"


def test_a_stream_of_ffmpeg_that_is_killed_is_lost_and_continues_when_it_is_back() -> None:
    port = free_port()
    output = (*MPEGTS, f"tcp://127.0.0.1:{port}?listen")
    source = VideoConfig(url=f"tcp://127.0.0.1:{port}", timeout_s=5.0).open(Path())
    for _ in range(2):
        with streaming(*output) as process:
            count = 0
            until_s = time.monotonic() + 30
            while not count and time.monotonic() < until_s:
                with suppress(SourceLostError):  # ffmpeg may not listen yet
                    for _frame in source.frames():
                        count += 1
                        if count == 5:
                            process.kill()
            assert count >= 5
    with pytest.raises(SourceLostError, match="Connection refused"):
        list(source.frames())
    source.close()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_rtsp_is_received(transport: str) -> None:
    """ffmpeg sends to us, because it has no RTSP server; the connection is the other way round."""
    address = f"rtsp://127.0.0.1:{free_port()}/live"
    options = {"rtsp_flags": "listen", "listen_timeout": "20"}
    keys = {"url": address, "transport": transport, "timeout_s": 20.0, "options": options}
    source = VideoConfig.model_validate(keys).open(Path())
    numbers: list[int] = []

    def receive() -> None:
        for frame in source.frames():
            numbers.append(number_in(image(frame)))
            if len(numbers) == 5:
                source.close()

    thread = threading.Thread(target=receive)
    thread.start()
    send = (*MPEGTS[:-2], "-f", "rtsp", "-rtsp_transport", transport, address)
    until_s = time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < until_s:
        with streaming(*send) as process:  # it ends at once if we do not listen yet
            while thread.is_alive() and process.poll() is None:
                thread.join(0.1)
    source.close()
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 5


def test_a_server_that_says_nothing_is_lost_after_the_time_out() -> None:
    with silent_server() as url:
        source = VideoConfig(url=url, timeout_s=0.3).open(Path())
        with pytest.raises(
            SourceLostError, match=r"no answer arrived for 0\.3 s|no frame arrived for"
        ):
            list(source.frames())


def test_close_ends_the_frames_of_a_server_that_says_nothing() -> None:
    with silent_server() as url:
        source = VideoConfig(url=url, timeout_s=60.0).open(Path())
        thread = threading.Thread(target=lambda: list(source.frames()))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        source.close()
        thread.join(20.0)
        assert not thread.is_alive()


def test_a_process_ends_while_libav_waits() -> None:
    """The thread that was left must not hold it up, nor crash it."""
    with silent_server() as url:
        code = (
            "import sys, threading; from pathlib import Path;"
            "from launcher.sources.video import VideoConfig\n"
            "source = VideoConfig(url=sys.argv[1], timeout_s=60.0).open(Path())\n"
            "thread = threading.Thread(target=lambda: list(source.frames()))\n"
            "thread.start(); thread.join(0.3); source.close(); thread.join()\n"
        )
        subprocess.run([sys.executable, "-c", code, url], check=True, timeout=20)


def test_there_is_one_attempt_at_a_time() -> None:
    """Those that hang do not pile up."""
    with silent_server() as url:
        source = VideoConfig(url=url, timeout_s=0.2).open(Path())
        before = threading.active_count()
        for _ in range(5):
            with pytest.raises(SourceLostError):
                list(source.frames())
            assert threading.active_count() <= before + 1
        source.close()


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(int(self.path.strip("/")))

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "kind"), [(401, BadInputError), (404, SourceLostError), (503, SourceLostError)]
)
def test_a_refused_password_is_the_users_mistake_and_other_answers_may_change(
    code: int, kind: type[LauncherError]
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(LauncherError) as caught:
                frames_of(f"http://me:secret@127.0.0.1:{server.server_port}/{code}", timeout_s=5.0)
        finally:
            server.shutdown()
            thread.join()
    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("written", ["username", "url"])
def test_a_password_comes_from_the_environment_or_a_file(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, password = write_video(tmp_path / "a.mp4", 3).read_bytes(), "s/ecr@e?t:#"
    expected = "Basic " + base64.b64encode(f"me:{password}".encode()).decode()
    given: list[str | None] = []

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given.append(self.headers["Authorization"])
            is_known = given[-1] == expected
            self.send_response(200 if is_known else 401)
            if not is_known:
                self.send_header("WWW-Authenticate", 'Basic realm="camera"')
            self.send_header("Content-Length", str(len(content) if is_known else 0))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(content if is_known else b"")

        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "password").write_text(password + "\n")
    monkeypatch.setenv("CAMERA_PASSWORD", password)
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"127.0.0.1:{server.server_port}/a.mp4?channel=1"
            user = {"username": "me"} if written == "username" else {}
            url = f"http://{'me@' if written == 'url' else ''}{place}"
            for key, where in (
                ("password_env", "CAMERA_PASSWORD"),
                ("password_file", str(tmp_path / "password")),
            ):
                found = frames_of(url, **user, **{key: where}, live=False)
                assert len(found) == 3
        finally:
            server.shutdown()
            thread.join()
    assert expected in given


@pytest.mark.slow
@pytest.mark.parametrize("method", ["basic", "digest"])
def test_a_camera_of_gstreamer_asks_for_the_password(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "s/ecr@e?t:#"
    (tmp_path / "password").write_text(password + "\n")
    monkeypatch.setenv("CAMERA_PASSWORD", password)
    monkeypatch.setenv("OTHER_PASSWORD", "another")
    command = [
        "/usr/bin/python3",
        str(Path(__file__).with_name("rtsp_server.py")),
        method,
        password,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            if not (port := server.stdout.readline()):
                pytest.skip("needs gir1.2-gst-rtsp-server-1.0, gstreamer1.0-plugins-base and -good")
            keys = {"url": f"rtsp://127.0.0.1:{int(port)}/live", "username": "me"}
            for key, where in (
                ("password_env", "CAMERA_PASSWORD"),
                ("password_file", str(tmp_path / "password")),
            ):
                source = VideoConfig.model_validate({**keys, key: where}).open(Path())
                found = list(itertools.islice(source.frames(), 3))
                source.close()
                assert [image(frame).shape for frame in found] == [(120, 160, 3)] * 3
            with pytest.raises(BadInputError, match="401 Unauthorized"):
                frames_of(keys["url"], username="me", password_env="OTHER_PASSWORD")
        finally:
            server.kill()


@contextmanager
def answering(answers: dict[str, tuple[int, bytes, str]]) -> Iterator[tuple[str, list[str]]]:
    """A server that has a code, content and Location for each path; gives its address, and what
    it was asked for."""
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            code, content, location = answers.get(self.path, (404, b"", ""))
            self.send_response(code)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_camera_cannot_make_the_launcher_ask_other_addresses(tmp_path: Path) -> None:
    video = write_video(tmp_path / "a.ts", 40).read_bytes()
    with answering({"/a.ts": (200, video, "")}) as (other, asked_of_other):
        playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other}/a.ts\n#EXT-X-ENDLIST\n"
        answers = {
            "/live.m3u8": (200, playlist.encode(), ""),
            "/moved": (302, b"", f"{other}/a.ts"),
            "/concat": (200, f"ffconcat version 1.0\nfile {other}/a.ts\n".encode(), ""),
        }
        with answering(answers) as (camera, _):
            keys = {"timeout_s": 5.0, "live": False}
            with pytest.raises(BadInputError, match="a playlist does; name the format"):
                frames_of(f"{camera}/live.m3u8", **keys)
            with pytest.raises(BadInputError, match="as a playlist does"):
                frames_of(f"{camera}/concat", **keys)
            with pytest.raises(SourceLostError, match="redirects to other addresses are not foll"):
                frames_of(f"{camera}/moved", **keys)
            assert asked_of_other == []
            assert len(frames_of(f"{camera}/live.m3u8", format="hls", **keys)) == 40
            assert len(frames_of(f"{camera}/moved", options={"max_redirects": "1"}, **keys)) == 40


def test_a_picture_at_an_address_is_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(np.full((24, 32, 3), 128, np.uint8)).save(path)
    with answering({"/snapshot.jpg": (200, path.read_bytes(), "")}) as (camera, _):
        assert len(frames_of(f"{camera}/snapshot.jpg", live=False)) == 1


def test_a_device_that_is_not_there_may_come_later() -> None:
    with pytest.raises(SourceLostError, match="/dev/video97: No such file"):
        frames_of("/dev/video97")


def test_a_host_that_is_unknown_is_named_without_the_password() -> None:
    with pytest.raises(SourceLostError, match=r"the host 'camera\.invalid' is unknown") as lost:
        frames_of("rtsp://me:secret@camera.invalid/a")
    assert "secret" not in str(lost.value)


def test_an_unknown_scheme_is_the_users_mistake() -> None:
    with pytest.raises(BadInputError, match="gopher2://camera/a: Protocol not found"):
        frames_of("gopher2://me:secret@camera/a")


def test_a_live_stream_leaves_out_what_is_broken(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.ts", 200, "-g", "20", "-b:v", "2M")
    content = bytearray(path.read_bytes())
    begin = 188 * (len(content) // 188 // 2)
    del content[begin : begin + 5 * 188]  # packets that a network has lost
    path.write_bytes(content)
    found, error = until_error(path, live=True)
    assert "the stream has ended" in str(error)
    numbers = [number_in(image(frame)) for frame in found]
    assert 150 < len(numbers) < 200
    assert numbers[:80] == list(range(80))
    assert numbers[-60:] == list(range(140, 200)), "from the next key frame on all are whole"


def test_without_pyav_a_sentence_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['av'] = None; from pathlib import Path;"
        "from launcher.errors import BadInputError;"
        "from launcher.sources.video import VideoConfig\n"
        "try: VideoConfig(url='rtsp://camera/a').open(Path())\n"
        "except BadInputError as error: print(error)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "a video needs av, which is not installed: install csdf-edge with its extra 's" in said


def test_a_video_of_other_metadata_than_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    ffmpeg(*bars(), "-frames:v", "2", "-metadata", "title=Kamera XXXX", path)
    path.write_bytes(path.read_bytes().replace(b"XXXX", b"\xe4\xf6\xfc\xff"))
    assert len(frames_of(path)) == 2
