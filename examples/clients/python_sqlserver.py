#!/usr/bin/env python3
"""A stalled worker is refused: Python with pymssql.

    python3 python_sqlserver.py sqlserver://user:password@host:1433?database=app report:42
"""

import sys
import uuid
from urllib.parse import parse_qs, unquote, urlsplit

import pymssql


def connect(dsn):
    url = urlsplit(dsn)
    # With autocommit off, pymssql is always in a transaction. A lease acquired or renewed in it would be nobody's
    # until some later commit, and its row locked until then.
    return pymssql.connect(
        server=url.hostname, port=url.port or 1433, user=unquote(url.username), password=unquote(url.password),
        database=parse_qs(url.query)["database"][0], as_dict=True, autocommit=True)


def call(connection, routine, *arguments, **named):
    """Calls a routine of the fence. Its answer is always one row."""
    values = ["%s"] * len(arguments) + [f"@{name} = %s" for name in named]
    with connection.cursor() as cursor:
        # The brackets are for check, which is a word of T-SQL.
        cursor.execute(f"EXEC fence.[{routine}] {', '.join(values)}", (*arguments, *named.values()))
        return cursor.fetchone()


def write_report(connection, resource, owner, generation):
    """Writes to a table of one's own, fenced: check first, in the transaction of the write."""
    connection.autocommit(False)  # begins a transaction
    try:
        checked = call(connection, "check", resource, owner, generation)
        if checked["outcome"] == "ok":
            with connection.cursor() as cursor:
                cursor.execute("INSERT report VALUES (%s, %s)", (resource, f"by {owner}"))
        connection.commit()  # and begins the next transaction; a rejection is recorded by it, too
    finally:
        connection.autocommit(True)  # rolls back what was not committed
    return checked


def refusal(answer):
    """Words a refusal: why, and what the row looked like when it was decided."""
    return "{outcome}, {reason}: {observed_owner} has generation {observed_generation}".format(**answer)


def main(dsn, resource):
    slow, fast = connect(dsn), connect(dsn)

    # The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
    request_id = str(uuid.uuid4())
    lease = call(slow, "acquire", resource, "slow", 1, request_id)
    print("slow acquire: {outcome}, generation {generation}".format(**lease))

    # Had the reply been lost, the same call with the same request_id would bring the same answer.
    again = call(slow, "acquire", resource, "slow", 1, request_id)
    print("slow acquire again: {outcome}, generation {generation}".format(**again))

    # The fast worker asks until the lease has run out, and takes over with the next generation.
    taken = call(fast, "acquire", resource, "fast", 60_000)
    while taken["outcome"] == "held":
        taken = call(fast, "acquire", resource, "fast", 60_000)
    print("fast acquire: {outcome}, generation {generation}".format(**taken))

    # It publishes, and repeats the call as after a lost reply: one operation_key for one result.
    for attempt in ("", " again"):
        published = call(fast, "publish", resource, "fast", taken["generation"], '{"rows": 12}', operation_key="build-1")
        print(f"fast publish{attempt}:", "{outcome}, revision {revision}".format(**published))

    # The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
    rejected = call(slow, "publish", resource, "slow", lease["generation"], '{"rows": 11}', operation_key="build-1")
    print("slow publish:", refusal(rejected))

    print("slow check:", refusal(write_report(slow, resource, "slow", lease["generation"])))
    print("fast check:", write_report(fast, resource, "fast", taken["generation"])["outcome"])

    released = call(fast, "release", resource, "fast", taken["generation"])
    print("fast release:", released["outcome"])


if __name__ == "__main__":
    main(*sys.argv[1:])
