package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// The leases that every comparison starts with: alive for a day, all of one owner and one generation. The
// generation is high enough that there are superseded tokens below it for every call of a run.
const (
	usualLeases = 1000
	maxClients  = 64
	owner       = "bench"
	generation  = int64(1) << 40
)

// database is one migrated database.
type database struct {
	server *server
	name   string
	leases int
}

func (d *database) drop(ctx context.Context) error {
	return d.server.execute(ctx, "DROP DATABASE IF EXISTS "+d.name+" WITH (FORCE)")
}

// reset brings the tables into the state in which every measurement starts, freshly vacuumed and analyzed.
func (d *database) reset(ctx context.Context) error {
	load := fmt.Sprintf(`
		SELECT FROM fence.acquire('first', 'bench', 1); -- the first grant of a database notes its history
		TRUNCATE fence.lease, fence.lease_term, fence.publication, fence.publication_key, fence.late_publication,
		         fence.rejection;
		INSERT INTO fence.lease (resource, generation, owner, acquired_at)
		SELECT 'bench:' || i, %[2]d, '%[3]s', clock_timestamp() FROM generate_series(0, %[1]d - 1) i;
		INSERT INTO fence.lease_term (resource, generation, owner, ttl_ms, lease_until, renewed_at)
		SELECT 'bench:' || i, %[2]d, '%[3]s', 86400000, clock_timestamp() + interval '1 day', clock_timestamp()
		  FROM generate_series(0, %[1]d - 1) i;`, d.leases, generation, owner)
	return d.server.with(ctx, d.name, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, load); err != nil {
			return fmt.Errorf("load %d leases: %w", d.leases, err)
		}
		if _, err := conn.Exec(ctx, "VACUUM ANALYZE fence.lease, fence.lease_term"); err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
		return nil
	})
}

// expire makes every lease one that anybody may take over.
func (d *database) expire(ctx context.Context) error {
	return d.server.with(ctx, d.name, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "UPDATE fence.lease_term SET lease_until = renewed_at")
		if err != nil {
			return fmt.Errorf("expire the leases: %w", err)
		}
		_, err = conn.Exec(ctx, "VACUUM ANALYZE fence.lease_term")
		return err
	})
}

// share is the part of a database's leases that one client works on: clients do not wait for one another.
type share struct {
	client, of int
}

// resources returns the names in the share, in random order, the same in each run. Their number is odd, so
// that each of two sides that take turns comes to all of them.
func (s share) resources(leases int) []string {
	var list []string
	for i := s.client; i < leases; i += s.of {
		list = append(list, fmt.Sprintf("bench:%d", i))
	}
	list = list[:len(list)-1+len(list)%2]
	order := rand.New(rand.NewPCG(uint64(s.client), uint64(s.of)))
	order.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
