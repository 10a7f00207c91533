package engine

import "context"

// Health implements [Reader].
func (s *mssqlSession) Health(ctx context.Context) ([]Finding, error) { return nil, ctx.Err() }
