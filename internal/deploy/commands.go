package deploy

import "context"

// Status says which migrations and routines are installed. It writes nothing.
func (d *Deployer) Status(ctx context.Context) (StatusResult, error) { panic("not yet") }

// Down takes migrations back, down to but without DownOptions.To. fence.floor and fence.epoch stay, so that numbering goes on where it stood.
// Without AllowDestructive it fails with kind destructive and says what would be lost.
func (d *Deployer) Down(ctx context.Context, options DownOptions) (DownResult, error) {
	panic("not yet")
}

// Uninstall drops the schema fence with all that is in it, and tells the highest generation. It never drops
// a role. It refuses (kind unfit) when the schema holds objects that are not ours.
func (d *Deployer) Uninstall(ctx context.Context, options UninstallOptions) (UninstallResult, error) {
	panic("not yet")
}

// Doctor says whether this database is fit to carry fences, installed or not. It writes nothing.
func (d *Deployer) Doctor(ctx context.Context) (DoctorResult, error) { panic("not yet") }

func (d *Deployer) dryRun(ctx context.Context, options MigrateOptions, all []migration) (MigrateResult, error) {
	panic("not yet")
}
