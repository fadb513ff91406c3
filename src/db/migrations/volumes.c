/* 70-79: volumes (§6.2, R48). Statements: session/volume_rows.c. */
#include "db/migrations.h"

extern const struct migration migrations_volumes[];
const struct migration migrations_volumes[] = {
    /* state: ready, deleting (its folder goes next). bytes: as last measured; unmeasured: it may
       have changed since. volume_uses: the sessions whose sandbox was started with it. */
    {70, "volumes",
     "CREATE TABLE volumes ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " name TEXT NOT NULL,"
     " state TEXT NOT NULL,"
     " bytes BIGINT NOT NULL,"
     " unmeasured BIGINT NOT NULL,"
     " measured_at BIGINT NOT NULL,"
     " created_at BIGINT NOT NULL,"
     " used_at BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, id));"
     "CREATE UNIQUE INDEX volumes_by_name ON volumes (tenant_id, name) WHERE state = 'ready';"
     "CREATE INDEX volumes_by_age ON volumes (tenant_id, created_at, id) WHERE state = 'ready';"
     "CREATE INDEX volumes_unmeasured ON volumes (measured_at)"
     " WHERE state = 'ready' AND unmeasured = 1;"
     "CREATE INDEX volumes_deleting ON volumes (tenant_id) WHERE state = 'deleting';"
     "CREATE TABLE volume_uses ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " volume_id TEXT NOT NULL,"
     " session_id TEXT NOT NULL,"
     " PRIMARY KEY (tenant_id, volume_id, session_id));"
     "CREATE INDEX volume_uses_by_session ON volume_uses (tenant_id, session_id);"},
    {0},
};
