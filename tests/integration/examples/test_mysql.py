"""The example of MySQL clusters, on the real control plane and a real MariaDB server.

The server is asked by a connection of its own, as root, not through the operator.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.examples.deployed import Example, Install, Resources
from tests.integration.scaffold.installed import Json
from tests.kit.mariadb import ROOT_PASSWORD, Server
from tests.kit.wait import wait_until

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [pytest.mark.nightly]

CLUSTER = {"clusterRef": {"name": "main"}}
OFTEN = {"ansible.sdk.operatorframework.io/reconcile-period": "5s"}
GRANTED = {"GRANT SELECT, INSERT ON `shop`.* TO `anna`@`%`"}
OLD, NEW = "docker.io/library/mariadb:11.4", "docker.io/library/mariadb:11.8"


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def mysql(install: Install, backups: Path) -> Example:
    """The operator, deployed and running, with its backups in a folder of the test."""
    example = install("mysql")
    example.tell(MYSQL_BACKUP_DIR=str(backups))
    example.start()
    return example


@pytest.fixture
def kinds(mysql: Example, namespace: str) -> dict[str, Resources]:
    names = ("MySQLCluster", "MySQLDatabase", "MySQLUser", "MySQLBackup", "MySQLRestore")
    return {name.removeprefix("MySQL").lower(): mysql.resources(name, namespace) for name in names}


def elsewhere(server: Server, **more: Any) -> Json:
    """The spec of a cluster whose server is this one."""
    endpoint = {"host": server.host, "port": server.port}
    return {"replicas": 0, "endpoint": endpoint, "rootPasswordSecret": {"name": "root"}, **more}


def secret(mysql: Example, namespace: str, name: str, **data: str) -> None:
    mysql.objects("v1", "secrets", namespace).post({"metadata": {"name": name}, "stringData": data})


@dataclass
class Shop:
    """The operator, its kinds in a namespace, and the server whose databases they are."""

    mysql: Example
    kinds: dict[str, Resources]
    server: Server
    namespace: str


def databases(server: Server) -> set[str]:
    own = {"information_schema", "mysql", "performance_schema", "sys"}
    return {name for (name,) in server.sql("SHOW DATABASES")} - own


def grants(server: Server, user: str) -> set[str]:
    """What it may do, but for the line that only says that it is there."""
    return {line for (line,) in server.sql(f"SHOW GRANTS FOR '{user}'@'%'") if "USAGE" not in line}


def test_databases_and_users_live_on_a_server(
    mysql: Example, kinds: dict[str, Resources], mariadb: Server, namespace: str, backups: Path
) -> None:
    shop = Shop(mysql, kinds, mariadb, namespace)
    _a_database_waits_for_its_cluster(shop)
    password = _a_user_may_do_what_its_spec_says(shop)
    _what_was_changed_by_hand_is_mended(shop)
    _changes_take_effect(shop, password)
    _nobody_takes_what_is_not_theirs(shop)
    _another_namespace_is_let_in_by_the_cluster(shop)
    _backup_and_restore(shop, backups / namespace)
    _outage(shop)
    _an_upgrade_changes_nothing(shop)

    # The rest goes with the operator, the cluster last.
    mysql.remove()
    assert databases(mariadb) == {"theirs", "kept"}
    assert mariadb.sql("SELECT user FROM mysql.user WHERE user = 'anna'") == []
    assert list((backups / namespace).iterdir()) == []


def _a_database_waits_for_its_cluster(shop: Shop) -> None:
    """Without it, it says so and is tried no more; with it, it comes to be."""
    cluster, database = shop.kinds["cluster"], shop.kinds["database"]
    database.create("shop", {**CLUSTER, "database": "shop"}, annotations=OFTEN)
    database.await_condition("shop", "Stalled", saying=f"There is no MySQLCluster {shop.namespace}/main")
    secret(shop.mysql, shop.namespace, "root", password=ROOT_PASSWORD)
    cluster.create("main", elsewhere(shop.server), annotations=OFTEN)
    database.await_success("shop")
    cluster.await_condition("main", "Available")
    assert databases(shop.server) == {"shop"}
    assert "MariaDB" in cluster.get("main")["status"]["version"]


def _a_user_may_do_what_its_spec_says(shop: Shop) -> str:
    """Return the password that was made for it."""
    user, server = shop.kinds["user"], shop.server
    privileges = [{"database": "shop", "allow": ["SELECT", "INSERT"]}]
    user.create("anna", {**CLUSTER, "username": "anna", "privileges": privileges}, annotations=OFTEN)
    user.await_success("anna")
    assert grants(server, "anna") == GRANTED
    known = shop.mysql.objects("v1", "secrets", shop.namespace).get("anna-mysql-user")["data"]
    password = base64.b64decode(known["password"]).decode()
    server.sql("CREATE TABLE things (name TEXT)", "shop")
    server.sql("INSERT INTO things VALUES ('first')", "shop", "anna", password)
    return password


def _what_was_changed_by_hand_is_mended(shop: Shop) -> None:
    """By the next run; and one more changes nothing."""
    server = shop.server
    server.sql("GRANT DROP ON shop.* TO anna@'%'; ALTER DATABASE shop CHARACTER SET latin1")
    wait_until(lambda: grants(server, "anna") == GRANTED, "the grants to be mended")
    charset = "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = 'shop'"
    wait_until(lambda: server.sql(charset) == [["utf8mb4"]], "the character set to be mended")
    for kind, name in (("user", "anna"), ("database", "shop"), ("cluster", "main")):
        settle(shop.kinds[kind], name)
        shop.kinds[kind].merge(name, {"metadata": {"annotations": dict.fromkeys(OFTEN)}})


def _changes_take_effect(shop: Shop, password: str) -> None:
    """Of what a user may do, and of a password of one's own."""
    user, server = shop.kinds["user"], shop.server
    secret(shop.mysql, shop.namespace, "chosen", password="a good one")
    user.change("anna", privileges=[{"database": "shop", "allow": ["SELECT"]}], passwordSecret={"name": "chosen"})
    user.await_success("anna")
    assert grants(server, "anna") == {"GRANT SELECT ON `shop`.* TO `anna`@`%`"}
    assert (server.lets_in("anna", "a good one"), server.lets_in("anna", password)) == (True, False)
    chosen = base64.b64encode(b"a better one").decode()
    shop.mysql.objects("v1", "secrets", shop.namespace).merge("chosen", {"data": {"password": chosen}})
    wait_until(lambda: server.lets_in("anna", "a better one"), "the new password")


def _nobody_takes_what_is_not_theirs(shop: Shop) -> None:
    """And giving up does not drop it."""
    database = shop.kinds["database"]
    shop.server.sql("CREATE DATABASE theirs")
    database.create("theirs", {**CLUSTER, "database": "theirs"})
    database.await_condition("theirs", "Stalled", saying="which this resource did not make")
    database.delete("theirs")
    database.await_gone("theirs")
    assert databases(shop.server) == {"shop", "theirs"}


def _another_namespace_is_let_in_by_the_cluster(shop: Shop) -> None:
    guest = f"{shop.namespace}-guest"
    shop.mysql.sh("kubectl", "create", "namespace", guest)
    database = shop.mysql.resources("MySQLDatabase", guest)
    database.create("guest", {"clusterRef": {"name": "main", "namespace": shop.namespace}, "database": "guest"})
    database.await_condition("guest", "Stalled", saying=f"does not let the namespace {guest} in")
    assert databases(shop.server) == {"shop", "theirs"}
    shop.kinds["cluster"].change("main", allowedNamespaces=[guest])
    database.await_success("guest")
    assert databases(shop.server) == {"shop", "theirs", "guest"}
    database.delete("guest")
    database.await_gone("guest")
    assert databases(shop.server) == {"shop", "theirs"}
    shop.mysql.sh("kubectl", "delete", "namespace", guest, "--wait=false")


def _an_upgrade_changes_nothing(shop: Shop) -> None:
    """The next version of the operator finds all as the one before left it, on the server too."""
    before = grants(shop.server, "anna"), databases(shop.server)
    objects = ("cluster", "main"), ("database", "shop"), ("user", "anna"), ("backup", "before"), ("restore", "back")
    shop.mysql.upgrades(*((shop.kinds[kind], name) for kind, name in objects))
    assert (grants(shop.server, "anna"), databases(shop.server)) == before


def settle(resources: Resources, name: str) -> None:
    """Hold that there is a run that changes nothing; what was written last tells of it."""
    wait_until(lambda: resources.result(name)["changed"] == 0, f"a run of {name} that changes nothing")


def _backup_and_restore(shop: Shop, folder: Path) -> None:
    backup, restore, mariadb = shop.kinds["backup"], shop.kinds["restore"], shop.server
    restore.create("back", {**CLUSTER, "backupRef": {"name": "before"}, "database": "kept"})
    restore.await_condition("back", "Stalled", saying="There is no MySQLBackup before")
    backup.create("before", {**CLUSTER, "database": "shop"}, annotations=OFTEN)
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
    restore.create("again", {**CLUSTER, "backupRef": {"name": "before"}, "database": "kept"})
    restore.await_condition("again", "Failure", saying="is not what was written")
    assert mariadb.sql("SELECT name FROM things", "kept") == [["first"], ["second"]]
    restore.delete("again")


def _outage(shop: Shop) -> None:
    """While the server is away, what is on it is kept track of."""
    cluster, database, mariadb = shop.kinds["cluster"], shop.kinds["database"], shop.server
    database.create("brief", {**CLUSTER, "database": "brief"})
    database.await_success("brief")
    mariadb.stop()
    database.delete("brief")
    database.await_condition("brief", "Failure", saying="cannot be asked")
    assert database.get("brief")["metadata"]["finalizers"] == ["db.example.com/finalizer"]
    database.create("late", {**CLUSTER, "database": "late", "deletionPolicy": "Retain"})
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


@dataclass
class Servers:
    """The three servers of a cluster, and what they are made of."""

    mysql: Example
    cluster: Resources
    namespace: str

    def __post_init__(self) -> None:
        self.pods = self.mysql.objects("v1", "pods", self.namespace)
        self.sets = self.mysql.objects("apps/v1", "statefulsets", self.namespace)
        self.services = self.mysql.objects("v1", "services", self.namespace)
        self.claims = self.mysql.objects("v1", "persistentvolumeclaims", self.namespace)

    def await_status(self, **wanted: Any) -> None:
        def holds() -> bool:
            status = self.cluster.get("main").get("status") or {}
            return all(status.get(name) == value for name, value in wanted.items())

        wait_until(holds, f"{wanted} in {self.cluster.get('main').get('status')}")

    def await_images(self, *wanted: str) -> None:
        def holds() -> bool:
            return [image_of(pod) for pod in sorted(self.pods.all(), key=name_of)] == [*wanted]

        wait_until(holds, f"pods of {wanted}")

    def story(self, since: Json) -> list[tuple[str, str]]:
        """Return which of the old pods went and which of the new ones were ready, in order, after a list of pods.

        Of a new one that is ended again nothing is told: kwok ends a pod by its name, and at times twice.
        """
        names = [name_of(pod) for pod in since["items"] if image_of(pod) == OLD]
        query = f"watch=1&resourceVersion={since['metadata']['resourceVersion']}&timeoutSeconds=1"
        told = self.mysql.sh("kubectl", "get", "--raw", f"{self.pods.path}?{query}").splitlines()
        pods = [pod for pod in (json.loads(line)["object"] for line in told) if name_of(pod) in names]
        found = [("went" if image_of(pod) == OLD else "came", name_of(pod)) for pod in pods if is_news(pod)]
        return list(dict.fromkeys(found))


def test_servers_are_upgraded_one_by_one(
    mysql: Example, kinds: dict[str, Resources], mariadb: Server, namespace: str
) -> None:
    servers = Servers(mysql, kinds["cluster"], namespace)
    secret(mysql, namespace, "root", password=ROOT_PASSWORD)
    storage = {"size": "1Gi", "whenDeleted": "Delete"}
    servers.cluster.create("main", elsewhere(mariadb, replicas=3, image=OLD, storage=storage), annotations=OFTEN)
    servers.await_status(readyReplicas=3, updatedReplicas=3)
    servers.await_images(OLD, OLD, OLD)
    _each_waits_for_the_one_ahead(servers)
    _scaled_and_broken_by_hand(servers)
    settle(servers.cluster, "main")

    mysql.await_collector(servers.cluster)
    mysql.remove()
    made = (servers.sets, servers.services, servers.pods, servers.claims)
    wait_until(lambda: not any(each.all() for each in made), "all of it to go")
    left = [name_of(each) for each in mysql.objects("v1", "secrets", namespace).all()]
    assert left == ["root"]


def _each_waits_for_the_one_ahead(servers: Servers) -> None:
    # The last one alone, to see how it does.
    servers.cluster.change("main", image=NEW, upgrade={"partition": 2})
    servers.await_images(OLD, OLD, NEW)
    servers.await_status(readyReplicas=3, updatedReplicas=1)

    # Then the others, the first one last: none goes before the one ahead of it is ready, so two of three always are.
    before = servers.mysql.api.call("GET", servers.pods.path)
    servers.cluster.change("main", upgrade={"partition": 0})
    servers.await_status(readyReplicas=3, updatedReplicas=3)
    servers.await_images(NEW, NEW, NEW)
    steps = [(what, f"main-mysql-{number}") for number in (1, 0) for what in ("went", "came")]

    def told() -> list[tuple[str, str]]:
        story = servers.story(before)
        return story if len(story) >= len(steps) else []

    assert wait_until(told, "all of it to be told") == steps


def _scaled_and_broken_by_hand(servers: Servers) -> None:
    servers.cluster.merge("main", {"spec": {"replicas": 2}}, "scale")
    servers.await_status(replicas=2, readyReplicas=2)
    servers.services.delete("main-mysql")
    wait_until(lambda: servers.services.get("main-mysql"), "the Service to come back")
    grace = "terminationGracePeriodSeconds"
    servers.sets.merge("main-mysql", {"spec": {"template": {"spec": {grace: 7}}}})

    def mended() -> bool:
        found: int = servers.sets.get("main-mysql")["spec"]["template"]["spec"][grace]
        return found == 60

    wait_until(mended, "the pods' template to be mended")


def name_of(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def image_of(pod: Json) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def is_news(pod: Json) -> bool:
    """Whether this is an old pod on its way out, or a new one that is ready."""
    leaves = "deletionTimestamp" in pod["metadata"]
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    return leaves if image_of(pod) == OLD else not leaves and conditions.get("Ready") == "True"
