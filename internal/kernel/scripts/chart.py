

def _modbox_setup():
    # Figures of matplotlib as data, beside their images.
    import math
    import re
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    kind = 'application/vnd.modbox.chart+json'
    max_points, max_elements, max_text = 10000, 1000, 1000

    def text(value):
        return str(value)[:max_text]

    def unit(label):
        found = re.search(r'\(([^()]*)\)\s*$|\[([^\[\]]*)\]\s*$', label)
        return (found.group(1) or found.group(2)) if found else None

    def label(artist):
        name = text(artist.get_label())
        return '' if name.startswith('_') else name

    class Axis:
        # An axis, whose values are numbers, dates or categories.
        def __init__(self, axis, scale):
            from matplotlib import category, dates
            self.axis, self.scale, self.convert = axis, scale, self.number
            converter = axis.get_converter() if hasattr(axis, 'get_converter') else axis.converter
            if isinstance(converter, category.StrCategoryConverter):
                self.names = {i: text(name) for name, i in axis.units._mapping.items()}
                self.scale, self.convert = 'categorical', self.category
            elif isinstance(converter, (dates.DateConverter, dates._SwitchableDateConverter)) or type(converter).__module__.startswith('pandas.'):
                if isinstance(axis.get_major_locator(), dates.DateLocator):
                    self.scale, self.convert = 'datetime', lambda value: dates.num2date(value).replace(tzinfo=None).isoformat()

        def number(self, value):
            value = float(value)
            return value if math.isfinite(value) else None

        def category(self, value):
            return self.names.get(value, self.number(value))

        def __call__(self, value):
            try:
                return None if value != value else self.convert(value)
            except Exception:
                return self.number(value)

        def ticks(self):
            names = [text(name.get_text()) for name in self.axis.get_ticklabels()]
            return [self(at) for at in self.axis.get_ticklocs()][:max_elements], names[:max_elements]

        def tick_at(self, value):
            for at, name in zip(self.axis.get_ticklocs(), self.axis.get_ticklabels()):
                if abs(at - value) < 1e-6 and name.get_text():
                    return text(name.get_text())
            return self(value)

    class Reader:
        # Reads one figure, up to a number of points.
        def __init__(self):
            self.left, self.truncated = max_points, False

        def take(self, items):
            items = list(items)
            if len(items) > self.left:
                items, self.truncated = items[:self.left], True
            self.left -= len(items)
            return items

        def points(self, artist, pairs, x, y):
            return {'label': label(artist), 'points': [[x(a), y(b)] for a, b in self.take(pairs)]}

        def bars(self, ax, x, y):
            for container in ax.containers:
                if type(container).__name__ != 'BarContainer':
                    continue
                group = label(container)
                upright = container.orientation != 'horizontal'
                for bar in self.take(container.patches):
                    at = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
                    yield {'group': group, 'label': (x if upright else y).tick_at(at),
                           'value': y.number(bar.get_height()) if upright else x.number(bar.get_width())}

        def wedges(self, ax):
            from matplotlib.patches import Wedge
            for wedge in self.take(p for p in ax.patches if isinstance(p, Wedge)):
                yield {'label': label(wedge), 'angle': float(abs(wedge.theta2 - wedge.theta1)), 'radius': float(wedge.r)}

        def boxes(self, lines, ax, x, y):
            # Of boxplot there are only lines: boxes as closed rectangles, which may be patches, and
            # for each two whiskers, which begin at the middle of an end, two caps and a median.
            shapes = [line.get_xydata() for line in lines if len(line.get_xydata()) == 5]
            shapes += [p.get_path().vertices[:5] for p in ax.patches if type(p).__name__ == 'PathPatch' and len(p.get_path().vertices) >= 5]
            data = [(line, line.get_xydata()) for line in lines]
            for shape in shapes:
                low, high = shape.min(axis=0), shape.max(axis=0)
                if (shape[0] != shape[4]).any():
                    continue
                for value, across in ((1, x), (0, y)):  # upright, lying
                    middle = (low[1 - value] + high[1 - value]) / 2
                    on = [(line, d) for line, d in data if abs(d[:, 1 - value] - middle).max() < 1e-9]
                    whiskers = [d[:, value] for line, d in on if len(d) == 2 and line.get_linestyle() != 'None']
                    medians = [d[0, value] for _, d in data if len(d) == 2 and d[0, value] == d[1, value] and low[value] <= d[0, value] <= high[value]
                               and abs(d[:, 1 - value].mean() - middle) < 1e-9 and abs(d[:, 1 - value] - middle).max() >= (high - low)[1 - value] / 2 - 1e-9]
                    if len(whiskers) != 2 or not medians:
                        continue
                    outliers = [float(v) for line, d in on if line.get_linestyle() == 'None' for v in d[:, value]]
                    ends = [float(v) for w in whiskers for v in w]
                    yield {'label': str(across.tick_at(middle)), 'min': min(ends), 'first_quartile': float(low[value]), 'median': float(medians[0]),
                           'third_quartile': float(high[value]), 'max': max(ends), 'outliers': self.take(outliers)}
                    break

        def charts(self, ax):
            x, y = Axis(ax.xaxis, ax.get_xscale()), Axis(ax.yaxis, ax.get_yscale())
            bar_lines = {id(part) for c in ax.containers for part in c.get_children()}
            lines = [line for line in ax.lines if id(line) not in bar_lines and line.get_transform().contains_branch(ax.transData)
                     and len(line.get_xdata()) and line.get_visible()]
            boxes = self.take(self.boxes(lines, ax, x, y))
            if boxes:
                lines = []
            dots = [line for line in lines if line.get_linestyle() in ('None', ' ', '') and line.get_marker() not in ('None', None, ' ', '')]
            scatters = [c for c in ax.collections if type(c).__name__ == 'PathCollection']
            found = [
                ('line', [self.points(line, line.get_xydata(), x, y) for line in lines if line not in dots]),
                ('scatter', [self.points(d, d.get_xydata(), x, y) for d in dots] + [self.points(c, c.get_offsets().filled(math.nan), x, y) for c in scatters]),
                ('bar', list(self.bars(ax, x, y))),
                ('pie', list(self.wedges(ax))),
                ('box_and_whisker', boxes),
            ]
            for name, elements in found:
                if not elements:
                    continue
                if len(elements) > max_elements and name not in ('bar', 'pie'):
                    elements, self.truncated = elements[:max_elements], True
                chart = {'type': name, 'title': text(ax.get_title())}
                if name != 'pie':
                    for letter, axis in (('x', x), ('y', y)):
                        chart[letter + '_label'] = text(axis.axis.get_label_text())
                        chart[letter + '_unit'] = unit(chart[letter + '_label'])
                        chart[letter + '_scale'] = axis.scale
                        chart[letter + '_ticks'], chart[letter + '_tick_labels'] = axis.ticks()
                chart['elements'] = elements
                yield chart

    def figure(value):
        try:
            reader = Reader()
            charts = [chart for ax in value.axes[:50] for chart in reader.charts(ax)]
            if not charts:
                return None
            chart = charts[0]
            if len(charts) > 1:
                title = value._suptitle.get_text() if value._suptitle is not None else ''
                chart = {'type': 'superchart', 'title': text(title), 'elements': charts}
            if reader.truncated:
                chart['truncated'] = True
            return chart
        except Exception:
            return None  # the image is there

    class ChartFormatter(BaseFormatter):
        format_type = Unicode(kind)
        print_method = ObjectName('_repr_modbox_chart_')
        _return_type = (dict,)

        # Matplotlib's own setup removes what all formatters have registered for figures.
        def __call__(self, value):
            if any(kind.__name__ == 'Figure' and kind.__module__ == 'matplotlib.figure' for kind in type(value).__mro__):
                return figure(value)
            return super().__call__(value)

    formatter = ChartFormatter(parent=get_ipython().display_formatter, enabled=True)
    get_ipython().display_formatter.formatters[kind] = formatter


try:
    _modbox_setup()
finally:
    del _modbox_setup
