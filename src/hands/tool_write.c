#include "hands/tools.h"
static void run(const struct tool_run *run, struct tool_result *out)
{
    (void)run;
    tool_error(out, "Tool write is not known in this sandbox.");
}
const struct tool tool_write = {.name = "write", .run = run};
