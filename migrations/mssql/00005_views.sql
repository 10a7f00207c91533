-- What a person, a dashboard or `fencectl leases` reads. Columns are only ever appended.

-- +goose Up

-- One row a resource. blocked_by_* is always NULL here: this engine's rows do not name their locker.
CREATE VIEW fence.lease_status AS
SELECT l.resource,
       CASE WHEN l.generation = 0 THEN N'unused'
            WHEN l.owner IS NULL THEN N'seized'
            WHEN l.released_at IS NOT NULL THEN N'released'
            WHEN t.lease_until <= SYSUTCDATETIME() THEN N'expired'
            ELSE N'live' END AS state,
       l.generation,
       l.owner,
       t.attributes,
       l.acquired_at,
       t.renewed_at,
       t.renewals,
       t.ttl_ms,
       t.lease_until,
       CASE WHEN l.released_at IS NULL AND t.lease_until > SYSUTCDATETIME()
            THEN (DATEDIFF_BIG(microsecond, SYSUTCDATETIME(), t.lease_until) + 999) / 1000
            ELSE CAST(0 AS bigint) END AS remaining_ms,
       l.released_at,
       l.accepted_generation,
       l.revision,
       l.floor,
       CAST(NULL AS int) AS blocked_by_pid,
       CAST(NULL AS nvarchar(128)) AS blocked_by_user,
       CAST(NULL AS nvarchar(128)) AS blocked_by_application,
       CAST(NULL AS nvarchar(60)) AS blocked_by_state,
       CAST(NULL AS datetime2(7)) AS blocked_since
  FROM fence.lease l
  JOIN fence.lease_term t ON t.resource = l.resource;

CREATE VIEW fence.rejections AS
SELECT r.resource, r.operation, r.reason, r.generation, r.owner, r.occurrences, r.first_at, r.last_at,
       r.observed_generation, r.observed_owner, r.observed_lease_until, r.observed_at
  FROM fence.rejection r;

CREATE VIEW fence.rejections_by_reason AS
SELECT r.operation, r.reason, r.hour, SUM(r.occurrences) AS occurrences, COUNT_BIG(DISTINCT r.resource) AS resources
  FROM (SELECT j.operation, j.reason, j.resource, j.occurrences,
               DATEADD(hour, DATEDIFF(hour, CAST('2000-01-01' AS datetime2(7)), j.first_at), CAST('2000-01-01' AS datetime2(7))) AS hour
          FROM fence.rejection j) r
 GROUP BY r.operation, r.reason, r.hour;

CREATE VIEW fence.publications AS
SELECT p.resource, p.revision, p.generation, p.owner, p.content_type, p.payload, p.source_as_of,
       p.published_at, p.late_ms
  FROM fence.publication p;

CREATE VIEW fence.late_publications AS
SELECT p.resource, p.revision, p.generation, p.owner, p.late_ms, p.published_at
  FROM fence.late_publication p;

-- +goose Down

DROP VIEW fence.late_publications;
DROP VIEW fence.publications;
DROP VIEW fence.rejections_by_reason;
DROP VIEW fence.rejections;
DROP VIEW fence.lease_status;
