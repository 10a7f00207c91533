// A stalled worker is refused: Java with JDBC for PostgreSQL.
//
//   java -cp postgresql.jar JdbcPostgres.java 'jdbc:postgresql://host/database?user=…&password=…' report:42

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.UUID;

public class JdbcPostgres {
    /** What these examples read of an answer. A column that a routine does not have, or that is NULL, is null. */
    record Answer(String outcome, String reason, Long generation, Long revision,
                  String observedOwner, Long observedGeneration) {
        /** Words a refusal: why, and what the row looked like when it was decided. */
        String refusal() {
            return outcome + ", " + reason + ": " + observedOwner + " has generation " + observedGeneration;
        }
    }

    static final String ACQUIRE = """
        SELECT outcome, NULL AS reason, generation, NULL::bigint AS revision,
               NULL AS observed_owner, NULL::bigint AS observed_generation
          FROM fence.acquire(?, ?, ?, ?)""";
    static final String PUBLISH = """
        SELECT outcome, reason, NULL::bigint AS generation, revision, observed_owner, observed_generation
          FROM fence.publish(?, ?, ?, ?, p_operation_key => ?)""";
    static final String CHECK = """
        SELECT outcome, reason, NULL::bigint AS generation, NULL::bigint AS revision,
               observed_owner, observed_generation
          FROM fence.check(?, ?, ?)""";
    static final String RELEASE = CHECK.replace("fence.check", "fence.release");

    /** Calls a routine of the fence. Its answer is always one row. */
    static Answer call(Connection connection, String statement, Object... arguments) throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            for (int i = 0; i < arguments.length; i++) {
                prepared.setObject(i + 1, arguments[i]); // Long as bigint, UUID as uuid, String as text
            }
            try (ResultSet row = prepared.executeQuery()) {
                row.next();
                // getObject: getLong would make 0 of a NULL.
                return new Answer(row.getString("outcome"), row.getString("reason"),
                    row.getObject("generation", Long.class), row.getObject("revision", Long.class),
                    row.getString("observed_owner"), row.getObject("observed_generation", Long.class));
            }
        }
    }

    /** Calls a routine whose effect must be seen by others at once: a transaction of its own. */
    static Answer callAndCommit(Connection connection, String statement, Object... arguments) throws SQLException {
        Answer answer = call(connection, statement, arguments);
        connection.commit(); // here, before the work begins: until it, nobody else sees the lease
        return answer;
    }

    /** Writes to a table of one's own, fenced: check first, in the transaction of the write. */
    static Answer writeReport(Connection connection, String resource, String owner, long generation) throws SQLException {
        try {
            Answer checked = call(connection, CHECK, resource, owner, generation);
            if (checked.outcome().equals("ok")) {
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO report VALUES (?, ?)")) {
                    insert.setString(1, resource);
                    insert.setString(2, "by " + owner);
                    insert.executeUpdate();
                }
            }
            connection.commit(); // and here, once, after the write: check holds the lease until then
            return checked;
        } catch (SQLException e) {
            connection.rollback();
            throw e;
        }
    }

    static Connection connect(String url) throws SQLException {
        Connection connection = DriverManager.getConnection(url);
        connection.setAutoCommit(false); // as frameworks do, to show where the commits belong
        return connection;
    }

    public static void main(String[] args) throws SQLException {
        String resource = args[1];
        try (Connection slow = connect(args[0]); Connection fast = connect(args[0])) {
            // The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
            UUID requestId = UUID.randomUUID();
            Answer lease = callAndCommit(slow, ACQUIRE, resource, "slow", 1L, requestId);
            System.out.printf("slow acquire: %s, generation %d%n", lease.outcome(), lease.generation());

            // Had the reply been lost, the same call with the same request_id would bring the same answer.
            Answer again = callAndCommit(slow, ACQUIRE, resource, "slow", 1L, requestId);
            System.out.printf("slow acquire again: %s, generation %d%n", again.outcome(), again.generation());

            // The fast worker asks until the lease has run out, and takes over with the next generation.
            Answer taken;
            do {
                taken = callAndCommit(fast, ACQUIRE, resource, "fast", 60_000L, UUID.randomUUID());
            } while (taken.outcome().equals("held"));
            System.out.printf("fast acquire: %s, generation %d%n", taken.outcome(), taken.generation());

            // It publishes, and repeats the call as after a lost reply: one operation_key for one result.
            for (String attempt : new String[] {"", " again"}) {
                Answer published = callAndCommit(fast, PUBLISH, resource, "fast", taken.generation(), "{\"rows\": 12}", "build-1");
                System.out.printf("fast publish%s: %s, revision %d%n", attempt, published.outcome(), published.revision());
            }

            // The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
            Answer rejected = callAndCommit(slow, PUBLISH, resource, "slow", lease.generation(), "{\"rows\": 11}", "build-1");
            System.out.println("slow publish: " + rejected.refusal());

            System.out.println("slow check: " + writeReport(slow, resource, "slow", lease.generation()).refusal());
            System.out.println("fast check: " + writeReport(fast, resource, "fast", taken.generation()).outcome());

            Answer released = callAndCommit(fast, RELEASE, resource, "fast", taken.generation());
            System.out.println("fast release: " + released.outcome());
        }
    }
}
