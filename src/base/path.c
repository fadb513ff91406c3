#include "base/path.h"

#include <limits.h>

bool path_is_clean(struct str path)
{
    struct str part;
    if (path.n == 0 || path.p[0] != '/' || str_has_nul(path))
        return false;
    if (path.n == 1)
        return true;
    if (path.p[path.n - 1] == '/')
        return false;
    path = (struct str){path.p + 1, path.n - 1};
    while (path.n > 0 && str_split(&path, '/', &part)) {
        if (part.n == 0 || part.n > NAME_MAX || str_is(part, ".") || str_is(part, ".."))
            return false;
    }
    return true;
}

bool path_is_within(struct str path, struct str folder)
{
    return folder.n == 1 ||
           (str_starts(path, folder) && (path.n == folder.n || path.p[folder.n] == '/'));
}
