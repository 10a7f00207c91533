// Package entra signs in to SQL Server with Microsoft Entra ID. It stands apart because of what it brings along:
// only the command line imports it.
package entra

import (
	"database/sql/driver"
	"errors"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/azuread"
	"github.com/microsoft/go-mssqldb/msdsn"
)

// ErrPlain is the error for a token that would travel readably.
var ErrPlain = errors.New("fedauth needs encrypt=true: the token would be sent in clear")

// Connector returns a connector for a sqlserver:// URL. Its parameter fedauth (ActiveDirectoryDefault,
// ActiveDirectoryManagedIdentity and so on, see go-mssqldb's package azuread) chooses how to sign in; without it
// the user and password of the URL do.
func Connector(dsn string) (driver.Connector, error) {
	config, err := msdsn.Parse(dsn)
	if err != nil {
		return nil, err
	}
	if config.Parameters["fedauth"] == "" {
		return mssql.NewConnector(dsn)
	}
	if config.Encryption == msdsn.EncryptionDisabled || config.Encryption == msdsn.EncryptionOff {
		return nil, ErrPlain
	}
	return azuread.NewConnector(dsn)
}
