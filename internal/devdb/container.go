package devdb

import (
	"context"
	"errors"
)

func (f *finder) startContainer(ctx context.Context, options Options, before error) (*Server, error) {
	return nil, f.explain(ctx, options.Version, errors.Join(before))
}
