package deploy_test

import "github.com/fencectl/fencectl/internal/deploy"

func migrateOptions() deploy.MigrateOptions {
	return deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout}
}
