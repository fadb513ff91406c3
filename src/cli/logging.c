#include "cli/logging.h"

#include <string.h>
#include <unistd.h>

enum log_format logging_format(const char *name)
{
    if (strcmp(name, "json") == 0)
        return LOG_JSON;
    return strcmp(name, "text") == 0 || isatty(STDERR_FILENO) ? LOG_TEXT : LOG_JSON;
}

const char *logging_format_name(enum log_format format)
{
    return format == LOG_JSON ? "json" : "text";
}

enum log_level logging_level(const char *name)
{
    static const char *const names[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
    for (int i = LOG_DEBUG; i <= LOG_ERROR; i++) {
        if (strcmp(name, names[i]) == 0)
            return (enum log_level)i;
    }
    return LOG_INFO;
}
