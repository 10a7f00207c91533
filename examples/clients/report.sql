-- What the workers of these examples write to, on PostgreSQL and on SQL Server: any table of your own.
CREATE TABLE report (
    name varchar(255) NOT NULL PRIMARY KEY,
    body varchar(255) NOT NULL
);
