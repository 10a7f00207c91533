-- Says what is deployed here, so that a caller can tell whether it knows this contract.
--
-- Result      one row: contract_version; engine; engine_version; schema_version (the newest migration);
--             timeline_source (none: nothing raises generations by itself after a restore)
-- Locks       none that last; read only
-- Errors      none
CREATE PROCEDURE fence.about
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

SELECT CAST(1 AS int) AS contract_version,
       N'sqlserver' AS engine,
       CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)) AS engine_version,
       (SELECT CAST(MAX(v.version_id) AS bigint)
          FROM fence.goose_db_version v WITH (READCOMMITTEDLOCK)
         WHERE v.is_applied = 1) AS schema_version,
       N'none' AS timeline_source;
