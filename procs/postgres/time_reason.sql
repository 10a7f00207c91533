-- What a token that the fence accepts can still be refused for, by the clock; or NULL.
--
-- Internal: called by check and publish, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_policy             until_superseded ignores lease_until
--             p_lease_until        from the time row
--             p_clock              read after the last wait
--             p_source_as_of       how old the source data is; one in the future counts as age 0; NULL: no rule
--             p_max_source_age_ms  ms; NULL: no rule
-- Returns     expired · stale_source, the first that holds; or NULL
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.time_reason(
    p_policy text, p_lease_until timestamptz, p_clock timestamptz,
    p_source_as_of timestamptz, p_max_source_age_ms bigint)
RETURNS text
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_policy = 'unexpired' AND p_lease_until <= p_clock THEN 'expired'
        WHEN p_source_as_of < p_clock - p_max_source_age_ms * interval '1 millisecond' THEN 'stale_source'
    END
$$;
