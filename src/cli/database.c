#include "cli/database.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* The working directory becomes DATA, because control's uid may not be able to walk there from /.
 */
static err become_owner(const char *data)
{
    struct stat st;
    AUTO_FD dir = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND,
                                      "there is no data directory %s. Run: pi-managed init, "
                                      "or name it with --data",
                                      data)
                               : fail_errno("open %s", data);
    if (fstatat(dir, "control.db", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(E_NOT_FOUND, "%s holds no database. Run: pi-managed init --data %s", data,
                    data);
    if (fchdir(dir) < 0)
        return fail_errno("chdir %s", data);
    if (geteuid() != 0 || st.st_uid == 0)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
        setresuid(st.st_uid, st.st_uid, st.st_uid) < 0)
        return fail_errno("become uid %u, the owner of the database", (unsigned)st.st_uid);
    return 0;
}

err database_open(const struct invocation *call, struct db **out)
{
    TRY(become_owner(option_value(call, "data")));
    return db_open("sqlite:control.db", out);
}
