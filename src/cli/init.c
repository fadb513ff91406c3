/* pi-managed init: makes a data directory with its first tenant and API key, without serving. */
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/logging.h"
#include "cli/service.h"

static const struct option options[] = {SERVICE_OPTIONS, OPTION_JSON, {0}};

static void print(const struct invocation *call, const struct service_setup *s)
{
    if (option_flag(call, "json")) {
        AUTO_BUF text = {0};
        AUTO_JSON j = json_pack("{s:s, s:s}", "tenantId", s->tenant, "apiKey", s->token);
        json_write(j, &text);
        printf("%s\n", text.p);
        return;
    }
    printf("The data directory %s is ready.\n\n  tenant   %s\n  API key  %s   (shown once)\n",
           s->data.path, s->tenant, s->token);
}

static int run(const struct invocation *call)
{
    static struct service_setup s;
    log_init("init", logging_format(option_value(call, "log-format")),
             logging_level(option_value(call, "log-level")));
    err e = service_open(call, &s);
    if (!e && s.token[0] == 0)
        e = fail(E_CONFLICT, "%s has its tenants already. More keys: pi-managed key create",
                 s.data.path);
    int status = e ? command_fail(call) : 0;
    if (!e)
        print(call, &s);
    service_close(&s);
    return status;
}

const struct command init_command = {
    .name = "init",
    .arguments = "",
    .summary = "Makes a data directory with its first tenant and API key.",
    .options = options,
    .run = run,
};
