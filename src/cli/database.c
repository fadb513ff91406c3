#include "cli/database.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parent/roles.h"

/* Control's uid may not be able to walk to DATA from /, so it gets DATA bound to a fixed place in
   mounts of our own, as the control role does. */
static err bind_data(const char *data)
{
    if (mkdir(ROLE_ROOT, 0755) < 0 && errno != EEXIST)
        return fail_errno("create " ROLE_ROOT);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        mount(data, ROLE_ROOT, NULL, MS_BIND, NULL) < 0)
        return fail_errno("bind %s to " ROLE_ROOT, data);
    return 0;
}

static err become(uid_t uid, gid_t gid)
{
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return fail_errno("become uid %u, the owner of the database", (unsigned)uid);
    return 0;
}

err database_open(const struct invocation *call, struct db **out)
{
    char url[PATH_MAX + 32];
    struct stat st;
    const char *data = option_value(call, "data");
    if (snprintf(url, sizeof url, "%s/control.db", data) >= PATH_MAX)
        return fail(E_INVALID, "the path of the data directory is too long");
    if (lstat(url, &st) < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND,
                                      "there is no data directory of a service at %s. Run: "
                                      "pi-managed init, or name it with --data",
                                      data)
                               : fail_errno("open %s", url);
    if (geteuid() != 0 || st.st_uid == 0) {
        snprintf(url, sizeof url, "sqlite:%s/control.db", data);
        return db_open(url, out);
    }
    TRY(bind_data(data));
    TRY(become(st.st_uid, st.st_gid));
    return db_open("sqlite:" ROLE_ROOT "/control.db", out);
}

err database_write(const struct invocation *call, db_fn fn, void *arg)
{
    struct db *db = NULL;
    TRY(database_open(call, &db));
    err e = db_write(db, fn, arg);
    db_close(db);
    return e;
}

void database_print(json_t *take_line)
{
    AUTO_BUF text = {0};
    AUTO_JSON j = take_line;
    json_write(j, &text);
    printf("%s\n", text.p);
}
