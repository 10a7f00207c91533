-- Refuses a name (resource, owner, key) that the engines could tell apart differently.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @value     the name; one unit wider than a key column, since T-SQL cuts what is longer without a word
--             @argument  what the caller calls it; named in the error
-- Rule        1 to 255 UTF-16 code units; no control characters, no lone surrogates; no white space at either
--             end (SQL Server ignores it there)
-- Locks       none
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.assert_name
    @value nvarchar(256),
    @argument nvarchar(64)
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @message nvarchar(400);
DECLARE @state int;
DECLARE @length int;
DECLARE @units int;
DECLARE @position int;
DECLARE @code int;
DECLARE @high int;
DECLARE @control bit;
DECLARE @lone bit;
DECLARE @blank bit;

SET @state = fence.argument_state(@argument);
IF @value IS NULL
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it must not be NULL';
    THROW 51001, @message, @state;
END;

-- LEN does not count blanks at the end; the full stop keeps them.
SET @length = LEN(@value + N'.') - 1;
SET @units = @length;
SET @control = 0;
SET @lone = 0;
SET @blank = 0;

IF @length > 0 AND @value COLLATE Latin1_General_100_BIN2 LIKE N'%[^!-~]%'
BEGIN
    -- Anything but visible ASCII is looked at one by one. A character above U+FFFF is two code units: seen
    -- as two surrogates or as one code, as the collation of the database has it.
    SET @position = 1;
    SET @high = 0;
    WHILE @position <= @length
    BEGIN
        SET @code = UNICODE(SUBSTRING(@value, @position, 1));
        IF @code <= 31 OR @code BETWEEN 127 AND 159
            SET @control = 1;
        IF @code > 65535
            SET @units = @units + 1;
        IF @high = 1 AND @code NOT BETWEEN 56320 AND 57343
            SET @lone = 1;
        IF @high = 0 AND @code BETWEEN 56320 AND 57343
            SET @lone = 1;
        SET @high = CASE WHEN @code BETWEEN 55296 AND 56319 THEN 1 ELSE 0 END;
        IF (@position = 1 OR @position = @length)
           AND (@code IN (32, 160, 5760, 8232, 8233, 8239, 8287, 12288) OR @code BETWEEN 8192 AND 8202)
            SET @blank = 1;
        SET @position = @position + 1;
    END;
    IF @high = 1
        SET @lone = 1;
END;

IF @units < 1 OR @units > 255
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it has '
        + CASE WHEN @units > 255 THEN N'more than 255' ELSE N'0' END
        + N' UTF-16 code units, allowed are 1 to 255';
    THROW 51001, @message, @state;
END;
IF @control = 1
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it contains a control character';
    THROW 51001, @message, @state;
END;
IF @lone = 1
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it contains half of a surrogate pair';
    THROW 51001, @message, @state;
END;
IF @blank = 1
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it begins or ends with white space';
    THROW 51001, @message, @state;
END;
