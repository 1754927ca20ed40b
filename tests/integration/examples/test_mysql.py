"""The example of MySQL clusters, on the real control plane and a real MariaDB server.

The server is asked by a connection of its own, as root, not through the operator.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.examples.conftest import Example, Install, Resources
from tests.integration.scaffold.installed import Json, eventually
from tests.mariadb import ROOT_PASSWORD, Server

pytestmark = pytest.mark.long

CLUSTER = {"clusterRef": {"name": "main"}}
OFTEN = {"ansible.sdk.operatorframework.io/reconcile-period": "5s"}
OLD, NEW = "docker.io/library/mariadb:11.4", "docker.io/library/mariadb:11.8"


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def mysql(install: Install, backups: Path) -> Example:
    """The operator, deployed and running, with its backups in a folder of the test."""
    example = install("mysql")
    deployment = "deployment/mysql-operator-controller-manager"
    where = f"--namespace={example.home}"
    example.sh("kubectl", "set", "env", where, deployment, f"MYSQL_BACKUP_DIR={backups}")
    example.sh("kubectl", "rollout", "status", where, deployment, "--timeout=120s")
    example.start()
    return example


@pytest.fixture
def kinds(mysql: Example, namespace: str) -> dict[str, Resources]:
    names = ("MySQLCluster", "MySQLDatabase", "MySQLUser", "MySQLBackup", "MySQLRestore")
    return {name.removeprefix("MySQL").lower(): mysql.resources(name, namespace) for name in names}


@pytest.fixture
def volumes(mysql: Example, namespace: str) -> Iterator[str]:
    """A storage class with a volume for each of three servers: nobody makes volumes on this control plane."""
    objects, name = mysql.objects("v1", "persistentvolumes"), f"of-{namespace}"
    for number in range(3):
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": name}
        where = {"hostPath": {"path": f"/nowhere/{name}"}}
        objects.create({"metadata": {"name": f"{name}-{number}"}, "spec": {**spec, **where}})
    yield name
    for number in range(3):
        objects.delete(f"{name}-{number}")


def elsewhere(server: Server, **more: Any) -> Json:
    """The spec of a cluster whose server is this one."""
    endpoint = {"host": server.host, "port": server.port}
    return {"replicas": 0, "endpoint": endpoint, "rootPasswordSecret": {"name": "root"}, **more}


def secret(mysql: Example, namespace: str, name: str, **data: str) -> None:
    mysql.objects("v1", "secrets", namespace).create({"metadata": {"name": name}, "stringData": data})


def databases(server: Server) -> set[str]:
    own = {"information_schema", "mysql", "performance_schema", "sys"}
    return {name for (name,) in server.sql("SHOW DATABASES")} - own


def grants(server: Server, user: str) -> set[str]:
    """What it may do, but for the line that only says that it is there."""
    return {line for (line,) in server.sql(f"SHOW GRANTS FOR '{user}'@'%'") if "USAGE" not in line}


def test_databases_and_users_live_on_a_server(
    mysql: Example, kinds: dict[str, Resources], mariadb: Server, namespace: str, backups: Path
) -> None:
    cluster, database, user = kinds["cluster"], kinds["database"], kinds["user"]

    # Without its cluster, a database says so, and is tried no more; with it, it comes to be.
    database.make("shop", {**CLUSTER, "database": "shop"}, annotations=OFTEN)
    database.await_condition("shop", "Stalled", saying=f"There is no MySQLCluster {namespace}/main")
    secret(mysql, namespace, "root", password=ROOT_PASSWORD)
    cluster.make("main", elsewhere(mariadb), annotations=OFTEN)
    database.await_success("shop")
    cluster.await_condition("main", "Available")
    assert databases(mariadb) == {"shop"}
    assert "MariaDB" in cluster.get("main")["status"]["version"]

    # A user may do what its spec says.
    privileges = [{"database": "shop", "allow": ["SELECT", "INSERT"]}]
    user.make("anna", {**CLUSTER, "username": "anna", "privileges": privileges}, annotations=OFTEN)
    user.await_success("anna")
    granted = {"GRANT SELECT, INSERT ON `shop`.* TO `anna`@`%`"}
    assert grants(mariadb, "anna") == granted
    known = mysql.objects("v1", "secrets", namespace).get("anna-mysql-user")["data"]
    password = base64.b64decode(known["password"]).decode()
    mariadb.sql("CREATE TABLE things (name TEXT)", "shop")
    mariadb.sql("INSERT INTO things VALUES ('first')", "shop", "anna", password)

    # What somebody changed by hand is mended by the next run, and one more changes nothing.
    mariadb.sql("GRANT DROP ON shop.* TO anna@'%'; ALTER DATABASE shop CHARACTER SET latin1")
    eventually(lambda: grants(mariadb, "anna") == granted, "the grants to be mended")
    charset = "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = 'shop'"
    eventually(lambda: mariadb.sql(charset) == [["utf8mb4"]], "the character set to be mended")
    for resources, name in ((user, "anna"), (database, "shop"), (cluster, "main")):
        settle(resources, name)
        resources.merge(name, {"metadata": {"annotations": dict.fromkeys(OFTEN)}})

    # Changed, and with a password of one's own.
    secret(mysql, namespace, "chosen", password="a good one")
    user.change("anna", privileges=[{"database": "shop", "allow": ["SELECT"]}], passwordSecret={"name": "chosen"})
    user.await_success("anna")
    assert grants(mariadb, "anna") == {"GRANT SELECT ON `shop`.* TO `anna`@`%`"}
    assert (mariadb.lets_in("anna", "a good one"), mariadb.lets_in("anna", password)) == (True, False)
    chosen = base64.b64encode(b"a better one").decode()
    mysql.objects("v1", "secrets", namespace).merge("chosen", {"data": {"password": chosen}})
    eventually(lambda: mariadb.lets_in("anna", "a better one"), "the new password")

    # Nobody takes what is not theirs, and giving up does not drop it.
    mariadb.sql("CREATE DATABASE theirs")
    database.make("theirs", {**CLUSTER, "database": "theirs"})
    database.await_condition("theirs", "Stalled", saying="which this resource did not make")
    database.delete("theirs")
    database.await_gone("theirs")
    assert databases(mariadb) == {"shop", "theirs"}

    _backup_and_restore(kinds, mariadb, backups / namespace)
    _outage(kinds, mariadb)

    # The rest goes with the operator, the cluster last.
    mysql.remove()
    assert databases(mariadb) == {"theirs", "kept"}
    assert mariadb.sql("SELECT user FROM mysql.user WHERE user = 'anna'") == []
    assert list((backups / namespace).iterdir()) == []


def settle(resources: Resources, name: str) -> None:
    """Hold that there is a run that changes nothing; what was written last tells of it."""
    eventually(lambda: resources.await_success(name)["changed"] == 0, f"a run of {name} that changes nothing")


def _backup_and_restore(kinds: dict[str, Resources], mariadb: Server, folder: Path) -> None:
    backup, restore = kinds["backup"], kinds["restore"]
    restore.make("back", {**CLUSTER, "backupRef": {"name": "before"}, "database": "kept"})
    restore.await_condition("back", "Stalled", saying="There is no MySQLBackup before")
    backup.make("before", {**CLUSTER, "database": "shop"}, annotations=OFTEN)
    backup.await_success("before")
    backup.await_condition("before", "Stored")
    dump = folder / "before.sql.gz"
    assert "'first'" in gzip.decompress(dump.read_bytes()).decode()
    restore.await_success("back")
    assert mariadb.sql("SELECT name FROM things", "kept") == [["first"]]

    # Taken and put back once: what came later stays.
    mariadb.sql("INSERT INTO things VALUES ('second')", "kept")
    taken = dump.read_bytes()
    settle(backup, "before")
    backup.merge("before", {"metadata": {"annotations": dict.fromkeys(OFTEN)}})
    assert dump.read_bytes() == taken

    # A dump that was changed is not put back.
    dump.write_bytes(gzip.compress(b"DROP DATABASE shop"))
    restore.make("again", {**CLUSTER, "backupRef": {"name": "before"}, "database": "kept"})
    restore.await_condition("again", "Failure", saying="is not what was written")
    assert mariadb.sql("SELECT name FROM things", "kept") == [["first"], ["second"]]
    restore.delete("again")


def _outage(kinds: dict[str, Resources], mariadb: Server) -> None:
    """While the server is away, what is on it is kept track of."""
    cluster, database = kinds["cluster"], kinds["database"]
    database.make("brief", {**CLUSTER, "database": "brief"})
    database.await_success("brief")
    mariadb.stop()
    database.delete("brief")
    database.await_condition("brief", "Failure", saying="cannot be asked")
    assert database.get("brief")["metadata"]["finalizers"] == ["db.example.com/finalizer"]
    database.make("late", {**CLUSTER, "database": "late", "deletionPolicy": "Retain"})
    database.await_condition("late", "Failure", saying="cannot be asked")
    cluster.merge("main", {"spec": {"allowedNamespaces": ["other"]}})
    cluster.await_condition("main", "Available", "False")
    mariadb.start()
    database.await_gone("brief")
    database.await_success("late")
    cluster.await_condition("main", "Available")
    assert databases(mariadb) == {"shop", "theirs", "kept", "late"}
    database.delete("late")
    database.await_gone("late")
    assert "late" in databases(mariadb)
    mariadb.sql("DROP DATABASE late")


def test_servers_are_upgraded_one_by_one(
    mysql: Example, kinds: dict[str, Resources], mariadb: Server, namespace: str, volumes: str
) -> None:
    cluster = kinds["cluster"]
    pods = mysql.objects("v1", "pods", namespace)
    sets, services = mysql.objects("apps/v1", "statefulsets", namespace), mysql.objects("v1", "services", namespace)
    secret(mysql, namespace, "root", password=ROOT_PASSWORD)
    storage = {"size": "1Gi", "storageClassName": volumes, "whenDeleted": "Delete"}
    cluster.make("main", elsewhere(mariadb, replicas=3, image=OLD, storage=storage), annotations=OFTEN)

    def told(**wanted: Any) -> None:
        def holds() -> bool:
            status = cluster.get("main").get("status") or {}
            return all(status.get(name) == value for name, value in wanted.items())

        eventually(holds, f"{wanted} in {cluster.get('main').get('status')}")

    def images() -> list[str]:
        return [pod["spec"]["containers"][0]["image"] for pod in sorted(pods.all(), key=name_of)]

    told(readyReplicas=3, updatedReplicas=3)
    assert images() == [OLD, OLD, OLD]

    # The last one alone, to see how it does.
    cluster.change("main", image=NEW, upgrade={"partition": 2})
    eventually(lambda: images() == [OLD, OLD, NEW], "the last one to be upgraded")
    told(readyReplicas=3, updatedReplicas=1)

    # Then the others: at each moment two of three were ready, and the first came last.
    before = mysql.sh("kubectl", "get", "--raw", f"/api/v1/namespaces/{namespace}/pods")
    cluster.change("main", upgrade={"partition": 0})
    told(readyReplicas=3, updatedReplicas=3)
    assert images() == [NEW, NEW, NEW]
    version = json.loads(before)["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=1"
    history = mysql.sh("kubectl", "get", "--raw", f"/api/v1/namespaces/{namespace}/pods?{query}").splitlines()
    now = {name_of(pod): is_ready(pod) for pod in json.loads(before)["items"]}
    gone = []
    for event in map(json.loads, history):
        name = name_of(event["object"])
        now[name] = event["type"] != "DELETED" and is_ready(event["object"])
        gone += [name] if event["type"] == "DELETED" else []
        assert sum(now.values()) >= 2, now
    assert gone == ["main-mysql-1", "main-mysql-0"]

    # Scaled as anything is, and mended when somebody breaks it.
    cluster.merge("main", {"spec": {"replicas": 2}}, "scale")
    told(replicas=2, readyReplicas=2)
    services.delete("main-mysql")
    eventually(lambda: services.get("main-mysql"), "the Service to come back")
    sets.merge("main-mysql", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}})
    grace = "terminationGracePeriodSeconds"
    eventually(
        lambda: sets.get("main-mysql")["spec"]["template"]["spec"][grace] == 60, "the pods' template to be mended"
    )
    settle(cluster, "main")

    mysql.remove()
    claims = mysql.objects("v1", "persistentvolumeclaims", namespace)
    eventually(lambda: not any(each.all() for each in (sets, services, pods, claims)), "all of it to go")
    left = [name_of(each) for each in mysql.objects("v1", "secrets", namespace).all()]
    assert left == ["root"]


def name_of(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def is_ready(pod: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
