package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby starts a streaming, asynchronous standby of the server, on a port of
// its own and with the same password, and returns when it streams. It is a
// server like any other: it has to be stopped, and outlives its primary. It has
// no replication slot, which would stay on the primary after it: while it is
// down it may fall behind by 256 MB of WAL (wal_keep_size), not more.
//
// It returns [ErrNoBasebackup] when the base backup cannot be taken with the
// programs of this machine, and [ErrContainer] for a server in a container.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	primary, ok := s.host.(*local)
	if !ok {
		return nil, fmt.Errorf("start standby: %w", ErrContainer)
	}
	program, err := newFinder().basebackup(ctx, primary.installation)
	if err != nil {
		return nil, fmt.Errorf("start standby: %w", err)
	}
	folder, err := newFolder(primary.account)
	if err != nil {
		return nil, fmt.Errorf("start standby: %w", err)
	}
	host := &local{installation: primary.installation, account: primary.account, folder: folder}
	standby := &Server{
		options:  Options{Version: s.options.Version, Settings: s.options.Settings},
		password: s.password, folder: folder, host: host,
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.startStandby(ctx, standby, host, program); err != nil {
		return nil, fmt.Errorf("start standby: %w", errors.Join(err, standby.Stop(ctx)))
	}
	return standby, nil
}

func (s *Server) startStandby(ctx context.Context, standby *Server, host *local, program string) error {
	name := host.replicationName()
	_, err := host.run(ctx, program, []string{"PGPASSWORD=" + s.password},
		"--pgdata", host.dataDir(), "--write-recovery-conf",
		"--checkpoint", "fast", "--wal-method", "stream", "--no-sync", "--no-password",
		"--dbname", fmt.Sprintf("host=127.0.0.1 port=%d user=%s sslmode=disable application_name=%s", s.port, superuser, name))
	if err != nil {
		return err
	}
	if err := standby.startOnPort(ctx, host); err != nil {
		return err
	}
	return s.waitUntil(ctx, "the standby streams",
		"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming')", name)
}

// replicationName names the standby in the primary's pg_stat_replication.
func (l *local) replicationName() string {
	return filepath.Base(l.folder.path)
}

// basebackup returns a pg_basebackup that can copy a server of the given
// installation: its own, or else the oldest other one that is not older.
func (f *finder) basebackup(ctx context.Context, server Installation) (string, error) {
	found, err := f.installed(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	best := Installation{}
	for _, one := range append([]Installation{server}, found...) {
		if _, missing := os.Stat(one.program("pg_basebackup")); missing != nil || one.majorNumber() < server.majorNumber() {
			continue
		}
		if best.BinDir == "" || one.majorNumber() < best.majorNumber() {
			best = one
		}
	}
	if best.BinDir == "" {
		return "", errors.Join(fmt.Errorf("copy postgresql %s: %w", server.Version, ErrNoBasebackup), err)
	}
	return best.program("pg_basebackup"), nil
}

// Promote makes a standby a primary, and returns when it takes writes. Its
// timeline is then one higher. The old primary is not told.
func (s *Server) Promote(ctx context.Context) error {
	err := s.query(ctx, superuser, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT pg_promote(false)")
		return err
	})
	if err == nil {
		err = s.waitUntil(ctx, "recovery is over", "SELECT NOT pg_is_in_recovery()")
	}
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	return nil
}

// WaitReplayed returns when the standby has replayed all that the server has
// written so far.
func (s *Server) WaitReplayed(ctx context.Context, standby *Server) error {
	var position string
	err := s.query(ctx, superuser, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&position)
	})
	if err == nil {
		err = standby.waitUntil(ctx, "the standby has replayed",
			"SELECT COALESCE(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)", position)
	}
	if err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return nil
}

// waitUntil asks the server until the answer is true.
func (s *Server) waitUntil(ctx context.Context, what, question string, args ...any) error {
	return s.query(ctx, superuser, func(conn *pgx.Conn) error {
		for {
			var yes bool
			if err := conn.QueryRow(ctx, question, args...).Scan(&yes); err != nil || yes {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait until %s: %w%s", what, ctx.Err(), s.lastLog())
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}
