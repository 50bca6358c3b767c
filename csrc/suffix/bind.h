#pragma once
#include <nanobind/nanobind.h>

void bind_suffix(nanobind::module_& m);
