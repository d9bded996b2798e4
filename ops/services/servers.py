"""What each server is: its command line, the files that it reads, the ports that it takes, the question that it must answer.

Knows no running process; those that come from the distribution's packages are in `packaged`. `gateway` is a second Thrift
gateway in a process of its own, to try what happens when one of two goes.
"""

from __future__ import annotations

import hashlib
import shutil
import string
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from ops.services.errors import ServicesError
from ops.services.packaged import PACKAGED, packaged, version
from ops.services.places import ROOT, Places, Ports, pinned, pom
from ops.services.probes import hbase_answers, kafka_answers
from ops.services.server import Habits, Server
from ops.services.tools import Say, Tools, coprocessor, libraries

IN_JAVA = ("hbase", "kafka")  # in the order of their starts: HBase takes longer
ALWAYS = (*IN_JAVA, *PACKAGED)
ON_DEMAND = ("gateway",)
NAMES = (*ALWAYS, *ON_DEMAND)

_OPS = ROOT / "ops"
_FORMAT_S = 60.0
_SMALL_HEAP = ("-Xms64m", "-Xmx256m")


def ports_of(name: str, ports: Ports) -> tuple[int, ...]:
    """Return the ports that a server takes."""
    if name in PACKAGED:
        return (PACKAGED[name].port(ports),)
    if name == "kafka":
        return (ports.kafka, ports.kafka_controller)
    if name == "gateway":
        return (ports.second_thrift,)
    return (ports.thrift, ports.zookeeper, ports.hbase_master, ports.hbase_regionserver)


def habits_of(name: str) -> Habits:
    """Return how a server's process is recognised and stopped."""
    return PACKAGED[name].habits if name in PACKAGED else Habits()


def version_of(name: str) -> str:
    """Return a server's version: what the poms pin, or what the installed package says; empty if there is none."""
    if name in PACKAGED:
        return version(name)
    return pinned(pom("kafka"), "kafka.version") if name == "kafka" else pinned(pom("hbase"), "hbase.version")


def describe(name: str, places: Places, ports: Ports, tools: Callable[[], Tools], say: Say) -> Server:
    """Return a server by its name; what it needs is fetched and built, with `tools` where it is in Java."""
    if name in PACKAGED:
        return packaged(name, places, ports, say)
    if name == "kafka":
        return _kafka(places, ports, tools(), say)
    if name in ("hbase", "gateway"):
        return _hbase(name, places, ports, tools(), say)
    raise ServicesError(f"there is no server {name!r}; expected one of {', '.join(NAMES)}")


def _kafka(places: Places, ports: Ports, tools: Tools, say: Say) -> Server:
    folder = places.of("kafka")
    jars = libraries("kafka", places, tools, say)
    template = string.Template((_OPS / "kafka/server.properties").read_text(encoding="utf-8"))
    settings = template.substitute(folder=folder, broker=ports.kafka, controller=ports.kafka_controller)
    options = ("@jvm.options", "-Xms128m", "-Xmx512m", *_logging(folder), "-cp", f"{jars}/*")
    return Server(
        name="kafka",
        command=(tools.java,),
        arguments=(*options, "kafka.Kafka", "server.properties"),
        files={"server.properties": settings, **_files("kafka")},
        ports=ports_of("kafka", ports),
        ask=lambda: kafka_answers(ports.kafka),
        prepare=lambda: _format(folder, jars, tools),
        tool=(tools.java, *options),
    )


def _format(folder: Path, jars: Path, tools: Tools) -> None:
    """Give an empty log folder its cluster id: a new one each time, so that a log that was wiped is not taken for the old one."""
    if (folder / "log/meta.properties").exists():
        return
    shutil.rmtree(folder / "log", ignore_errors=True)
    cluster = "i" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    command = [tools.java, *_SMALL_HEAP, "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=log4j2.properties"]
    command += [f"-Diothub.log={folder / 'format.log'}", "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", cluster, "--config", "server.properties"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FORMAT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ServicesError(f"Kafka did not format its log folder within {_FORMAT_S:.0f} s") from None
    if done.returncode != 0:
        raise ServicesError(
            f"Kafka could not format its log folder; its output:\n{(done.stdout + done.stderr).strip()}"
        )


def _hbase(name: str, places: Places, ports: Ports, tools: Tools, say: Say) -> Server:
    folder = places.of(name)
    jars = libraries("hbase", places, tools, say)
    ours = _kept(coprocessor(tools, say), places)
    is_whole = name == "hbase"
    thrift = ports.thrift if is_whole else ports.second_thrift
    main = "iothub.hbase.server.SingleServer" if is_whole else "org.apache.hadoop.hbase.thrift.ThriftServer"
    heap = ("-Xms128m", "-Xmx768m", "-XX:MaxDirectMemorySize=256m") if is_whole else _SMALL_HEAP
    settings = {
        "dir": str(folder),
        "zookeeper.port": str(ports.zookeeper),
        "master.port": str(ports.hbase_master),
        "regionserver.port": str(ports.hbase_regionserver),
        "thrift.port": str(thrift),
    }
    properties = tuple(f"-Diothub.{key}={value}" for key, value in settings.items())
    class_path = f"{folder / 'conf'}:{ours}:{jars}/*"
    options = ("@jvm.options", *heap, *_logging(folder), *properties, "-cp", class_path)
    return Server(
        name=name,
        command=(tools.java,),
        arguments=(*options, main),
        files={
            "conf/hbase-site.xml": (_OPS / "hbase/conf/hbase-site.xml").read_text(encoding="utf-8"),
            **_files("hbase"),
        },
        ports=ports_of(name, ports),
        ask=lambda: hbase_answers(thrift),
        tool=(tools.java, *options),
    )


def _kept(jar: Path, places: Places) -> Path:
    """Copy our jar to a place that no build touches, its digest in the name: HBase caches the classes of a jar by its path."""
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()[:12]
    kept = places.libraries / f"{jar.stem}-{digest}.jar"
    if not kept.exists():
        half = kept.with_suffix(".half")
        shutil.copyfile(jar, half)
        half.rename(kept)
    return kept


def _logging(folder: Path) -> tuple[str, ...]:
    return ("-Dlog4j2.configurationFile=log4j2.properties", f"-Diothub.log={folder / 'log.txt'}")


def _files(server: str) -> dict[str, str]:
    return {
        "jvm.options": (_OPS / server / "jvm.options").read_text(encoding="utf-8"),
        "log4j2.properties": (_OPS / "services/log4j2.properties").read_text(encoding="utf-8"),
    }
